"""What defenses of vertical federations share: their base class, channels of labels, noise, budgets and claims.

Define the base class of defenses of vertical federations, in which parties hold different columns of the people.

Release a label, or another number out of 0..k-1, by a table of probabilities.

Clip vectors and draw additive noise, Gaussian in the L2 norm or Laplace in the L1 norm.

Split a pure-DP budget over the releases of a vertical federation.

State the claims of defenses of a vertical federation: about one label, and about one person's columns at a party.
"""

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot as one_hot_of

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY, Observer
from ...fl.laws import clip
from ...fl.streams import normal, uniform
from ...fl.vertical.protection import Noise, Noised, VerticalContext, VerticalLaw, VerticalPlan, VerticalProtection
from ..accounting.pure import BASIC_COMPOSITION, EXACT_COMPOSITION, each_of
from ..accounting.spending import Participations, Spending, gaussian_spending, pure_spending
from ..defense import DefensePart, DeltaOrZero, Epsilon
from ..randomisers.categories.grr import GRR


@dataclass(frozen=True, kw_only=True)
class VerticalPrepared:
    """A calibrated protection together with the privacy claims that its defense states; a defense may state none.

    Args:
        laws: the public descriptions of the noise that the claims rest on, by ``claim_id``.
        spending: by ``claim_id``, the epsilon that the claim's accountant gives for the first epochs at the same noise.
    """

    protection: VerticalProtection
    claims: tuple[Claim, ...]
    laws: Mapping[str, VerticalLaw] = field(default_factory=dict)
    spending: Mapping[str, Callable[[int], float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class VerticalDefense(DefensePart, ABC):
    """The base class of defenses of a vertical federation."""

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        """Calibrate the protection to the federation's public plan, and state its privacy claims.

        Raises:
            ValueError: if the plan violates an assumption of the defense's theorem.
        """
        raise TypeError(f"{type(self).__name__} must define the method prepare(plan)")


# Below this, what a sum of probabilities lacks to 1 is rounding, which must not draw a class of probability 0.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelProtection(VerticalProtection):
    """A protection that trains on labels randomised by a channel, a table of probabilities.

    Args:
        channel: (classes, classes), the probability that a label (row) is drawn as another (column).
        redraws: whether labels are drawn again in every epoch.
    """

    channel: Tensor
    redraws: bool = False

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        drawn = through(self.channel, one_hot.argmax(-1), rng)
        return one_hot_of(drawn, len(self.channel)).to(one_hot.dtype)


def through(channel: Tensor, values: Tensor, rng: np.random.Generator) -> Tensor:
    """Send ``values``, integers of any shape, through a channel: draw a number in 0..k-1 for each by the table
    ``channel (k, k)``.

    Each value takes one uniform number of the generator, so that another value changes no other draw.
    """
    bounds = channel.cumsum(1)
    bounds = bounds.masked_fill(bounds > 1 - _ROUNDING, 1.0)
    point = uniform(rng, (*values.shape, 1), dtype=torch.float64)
    return (point >= bounds[values]).sum(-1)


def targets_of(context: VerticalContext) -> Tensor:
    """Return the one-hot labels on which a step trains; raise ValueError if the step has none."""
    if context.targets is None:
        raise ValueError("the context of a step must hold the targets, because the hook reads them, got None")
    return context.targets


def response_channel(epsilon: float, classes: int) -> Tensor:
    """Return the table ``(classes, classes)`` of k-ary randomised response (Kairouz et al. 2016, equation 3)."""
    randomiser = GRR(epsilon=epsilon, domain=classes)
    channel = torch.full((classes, classes), randomiser.lie, dtype=torch.float64)
    return channel.fill_diagonal_(randomiser.truth)


def drawn(noise: Noise, scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Draw independent noise of a given standard deviation (Gaussian) or scale (Laplace)."""
    if noise is Noise.GAUSSIAN:
        return scale * normal(rng, shape)
    return torch.from_numpy(rng.laplace(scale=scale, size=shape)).to(torch.float32)


def clipped(values: Tensor, bound: float, noise: Noise) -> Tensor:
    """Scale each vector ``(..., d)`` to a norm of at most ``bound``: L2 for Gaussian noise, L1 for Laplace noise.

    The result is finite: a NaN entry counts as zero, an infinite entry as the largest finite number.
    """
    if noise is Noise.GAUSSIAN:
        return clip(values, bound)
    finite = torch.nan_to_num(values)
    # In double precision the sum of finite single-precision numbers cannot overflow.
    lengths = finite.double().abs().sum(-1, keepdim=True)
    return (finite * (bound / lengths.clamp_min(bound))).to(values.dtype)


MOST = 300.0
"""Largest epsilon of one release: a larger one hides nothing."""


ONE_PARTY = "a person's columns at one party"
"""The part of a claim about columns where several passive parties hold some."""


@dataclass(frozen=True, kw_only=True)
class ClaimingVerticalDefense(VerticalDefense, ABC):
    """A base class of defenses with one budget for all releases about one person together, which their claims state.

    Args:
        epsilon: of the budget; its delta is 0 unless a subclass has one.
    """

    epsilon: Epsilon = 4.0

    @property
    def delta(self) -> float:
        """The delta of the budget."""
        return 0.0

    def stated(
        self,
        plan: VerticalPlan,
        protection: VerticalProtection,
        law: VerticalLaw,
        *,
        observers: tuple[Observer, ...] = (PASSIVE_PARTY, FINAL_MODEL),
        each: float | None = None,
        releases: int = 1,
        once: bool = False,
        **words: Any,
    ) -> VerticalPrepared:
        """Return a protection with claims that state the budget over the whole training; the protection's ``law``
        determines which claims.

        Noise on columns or embeddings: one person's columns at one passive party, against the active party. Each
        passive party protects its own columns and trusts no other party. Where there are several, the claim names its
        part: all columns of a person together have the sum of the parties' privacy losses.

        Any other noise: one person's label, once per observer. The first observer is a passive party, the second one
        the public, which receives the final models of all parties. What both see is computed from the randomised labels
        alone, so that the claims have the same epsilon; they are two because no observer of a vertical federation sees
        all that another one sees. The active party holds the labels itself.

        Args:
            observers: of a label, those against whom it is claimed.
            each: the epsilon of one of the ``releases`` of an epoch, by which the epochs' spending is computed; where
                it is left out, that is computed from the claim's curve.
            once: whether the first epoch alone releases anything.
            words: mechanism, parameters, accountant, source and curve of the claim.
        """
        shared: dict[str, Any] = {"unit": Unit.LABEL, "trust": "the party with the labels"}
        if law.noised in (Noised.COLUMNS, Noised.EMBEDDINGS):
            part, observers = "joint" if plan.network.passive == 1 else ONE_PARTY, (ACTIVE_PARTY,)
            shared = {"unit": Unit.SAMPLE, "trust": "each passive party trusts only itself", "part": part}
        shared |= {"adjacency": Adjacency.REPLACE_ONE, "sampling": "no sampling is assumed, because batches are public"}
        shared |= {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.epochs, "dp_model": "local", **words}
        claims = tuple(Claim(observer=observer, **shared) for observer in observers)
        epochs: Participations = (lambda epochs: 1) if once else int
        spending: dict[str, Spending] = {}
        for claim in claims:
            if each is not None:
                spending |= pure_spending(claim, each=each, releases=releases, participations=epochs)
            elif claim.curve is not None:
                spending |= gaussian_spending(claim, epochs)
        return VerticalPrepared(
            protection=protection, claims=claims, laws={claim.claim_id: law for claim in claims}, spending=spending
        )


@dataclass(frozen=True, kw_only=True)
class PureVerticalDefense(ClaimingVerticalDefense, ABC):
    """A base class of defenses whose releases each have a pure epsilon.

    At delta 0 all releases get equal parts of the claimed epsilon; at another delta each may spend what exact
    composition allows (Kairouz, Oh, Viswanath 2015).

    Args:
        epsilon, delta: the budget of all releases about one person together.
    """

    delta: DeltaOrZero = 0.0

    @property
    def accountant(self) -> str:
        """The name of the composition theorem on which the claims rest."""
        return EXACT_COMPOSITION if self.delta else BASIC_COMPOSITION

    def each_of(self, releases: int) -> float:
        """Return the epsilon that each of ``releases`` releases may spend.

        Raises:
            ValueError: above 300, where a release hides nothing.
        """
        each = each_of(releases, epsilon=self.epsilon, delta=self.delta)
        if each > MOST:
            raise ValueError(
                f"each release must have an epsilon of at most {MOST:g}, because a larger one hides nothing; got a "
                f"total epsilon of {self.epsilon} for {releases} releases"
            )
        return each


@dataclass(frozen=True, kw_only=True)
class RandomisedLabels(PureVerticalDefense, ABC):
    """A base class of defenses that release each label once, or once in every epoch with a new draw.

    Args:
        redraw: whether labels are drawn anew in every epoch.
    """

    redraw: bool = False

    def releases(self, plan: VerticalPlan) -> int:
        """Return how often the training draws each label."""
        return plan.epochs if self.redraw else 1
