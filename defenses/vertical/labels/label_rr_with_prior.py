"""The active party trains on labels drawn by randomised response among the likeliest classes (Ghazi et al. 2021)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from ....fl.vertical.protection import Noised, VerticalLaw, VerticalPlan
from ..defense import MOST, ChannelProtection, ClaimingVerticalDefense, VerticalPrepared, response_channel

_SUM = 1e-6


@dataclass(frozen=True, kw_only=True)
class LabelRRWithPrior(ClaimingVerticalDefense):
    """A defense for label DP that draws labels among the k likeliest classes of a public prior: RRWithPrior.

    A label among them is kept with probability e^eps / (e^eps + k - 1), and otherwise replaced by another of them; any
    other label is replaced by one of them, uniformly. The number k maximises the probability that a label of the prior
    is kept, e^eps / (e^eps + k - 1) times the prior's mass of the k classes. Labels are drawn once.

    The claims: one person's label, over the whole training, against a passive party and against the public that
    receives the final models. They hold for any prior that does not depend on the labels of the people: a histogram of
    these would cost privacy that no claim counts. With a uniform prior it is plain randomised response; where k is 1
    all labels become one class and nothing is released.

    Args:
        epsilon: the budget of the one draw.
        prior: the public share of each class; None: uniform.

    Raises (in prepare):
        ValueError: for a prior of another number of classes.
    """

    prior: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon > MOST:
            raise ValueError(
                f"epsilon must be at most {MOST:g}, because a larger one hides nothing, got {self.epsilon}"
            )
        if self.prior is not None:
            _check_prior(self.prior)
            object.__setattr__(self, "prior", tuple(float(one) for one in self.prior))

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        classes = plan.network.classes
        prior = (1 / classes,) * classes if self.prior is None else self.prior
        if len(prior) != classes:
            raise ValueError(f"prior must have one share per class, {classes} classes, got {len(prior)} shares")
        likely = likely_classes(prior, self.epsilon)
        channel = top_k_channel(likely, self.epsilon, classes)
        return self.stated(
            plan,
            ChannelProtection(channel=channel),
            VerticalLaw(noised=Noised.TARGETS, channel=channel, releases=1),
            mechanism="randomised response on labels among the likeliest classes of a public prior",
            parameters={"classes": classes, "likely": len(likely), "releases": 1},
            accountant="exact",
            source="Ghazi et al. 2021, Algorithms 1 and 2",
            each=self.epsilon,
            once=True,
        )


def likely_classes(prior: Sequence[float], epsilon: float) -> tuple[int, ...]:
    """Return the classes among which RRWithPrior draws a label, the likeliest first (Ghazi et al. 2021, Algorithm
    2).
    """
    order = np.argsort(-np.asarray(prior), kind="stable")
    mass = np.cumsum(np.asarray(prior)[order])
    # e^eps / (e^eps + k - 1), written so that it cannot overflow.
    kept = mass / (1 + np.arange(len(order)) * math.exp(-epsilon))
    return tuple(int(one) for one in order[: int(np.argmax(kept)) + 1])


def top_k_channel(likely: tuple[int, ...], epsilon: float, classes: int) -> Tensor:
    """Return the table ``(classes, classes)`` of RRTop-k (Ghazi et al. 2021, Algorithm 1)."""
    channel = torch.zeros(classes, classes, dtype=torch.float64)
    chosen = torch.tensor(likely)
    channel[:, chosen] = 1 / len(likely)
    if len(likely) > 1:
        channel[chosen.unsqueeze(1), chosen] = response_channel(epsilon, len(likely))
    return channel


def _check_prior(prior: Sequence[float]) -> None:
    numbers = isinstance(prior, Sequence) and all(isinstance(one, Real) and not isinstance(one, bool) for one in prior)
    if isinstance(prior, str) or not numbers or not prior or min(prior) < 0 or not abs(math.fsum(prior) - 1) <= _SUM:
        raise ValueError(f"prior must be the share of each class, numbers >= 0 with sum 1, got {prior!r}")
