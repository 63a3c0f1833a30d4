"""Secure sum: clients clip, round, add a share of noise and mask; the server learns the sum of those who stayed."""

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import IntArray
from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.curve import Curve
from ...audit.nearest import nearest
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, Observer
from ...fl.laws.law import GaussianLaw
from ...fl.message import Message
from ...fl.partitions.sampling import FixedSize
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import uniform
from ..accounting.gaussian import check_least_noise
from ..clipped.defense import ClippedDefense
from .masks import draw_masks
from .modular_sum import SizedGrid, check_bits, size_grid, to_integers
from .samplers import LARGEST_SCALE

SERVER = Observer("aggregate", sees_participation=True, sees_masked_words=True)
"""Whom every claim of a secure sum is made against: it knows who took part, every masked word, and their sum."""
DROPS = ("random", "first")
_FINEST = LARGEST_SCALE - 1
"""Steps in the deviation of the sum's noise: on a finer grid the exact sampler's squares would leave 64 bits."""


class Budget(TypedDict):
    """Target and public facts of all rounds, as keywords."""

    epsilon: float
    delta: float
    rounds: int
    dimension: int


@dataclass(frozen=True, kw_only=True)
class SecureSumProtection(Protection):
    """aggregate = (sum of the survivors' clipped, rounded rows and noise shares) / survivors expected.

    Of those invited to a round a share of ``dropout``, rounded down, sends nothing. How many are invited is announced,
    and each share of noise is so large that the survivors' shares are the whole noise. (If more dropped out than that,
    the others would reveal no keys and the round would release nothing; here as many drop out as may.) A subclass says
    what a share of noise is.
    """

    clip_norm: float
    dropout: float
    drops: str
    sized: SizedGrid

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        """Shares of noise in steps, of which ``shares`` make the noise of the claim."""
        raise TypeError(f"{type(self).__name__} does not define noise_share(shares, shape, rng)")

    def shares_needed(self, invited: int) -> int:
        """How many of the clients invited bring the whole noise: those that are sure to stay."""
        return survivors_of(invited, self.dropout)

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """The survivors' masked words (int64); side ``recovered``: what their shares reveal of the masks."""
        grid, invited = self.sized.grid, updates.present
        survived = self._survivors(invited, rng)
        masks = draw_masks(invited, survived, updates.values.shape[-1], grid, rng)
        # Last: what is drawn for a row hangs on the data, and must shift no other draw.
        words = self.encoded(updates, rng)
        sent = replace(updates, present=survived, side={"recovered": masks.recovered}, masked=True)
        return sent.with_values(grid.wrap(words + masks.words))

    def encoded(self, updates: Message, rng: np.random.Generator) -> Tensor:
        """What the clients would send without masks, int64 in steps: rounded rows and shares of noise."""
        noise = self._noise(updates.present.sum(1), tuple(updates.values.shape), rng)
        return to_integers(updates.values, self.clip_norm, self.sized, rng) + noise

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """The survivors' words without the recovered masks, summed: one row, of no sender; none where nobody came. Side
        ``survivors``: how many they are.
        """
        unmasked = (reports.values - reports.side["recovered"]).masked_fill(~reports.present.unsqueeze(-1), 0)
        total = self.sized.grid.wrap(unmasked.sum(1, keepdim=True))
        survivors = reports.present.sum(1, keepdim=True)
        return Message(values=total, present=survivors > 0, senders=None, side={"survivors": survivors})

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """The sum in the unit of the updates, over the number of survivors that the plan lets expect."""
        mean = self.sized.grid.decode(received.values[:, 0]) / expected_survivors(context.plan, self.dropout)
        return mean.float()

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """The sum of a round, whose survivors are as few as allowed.

        The noise lies on a grid that is fine against its deviation: the law is its continuous twin. ``clip_norm`` is
        the bound on a rounded row, a little above the raw one.
        """
        if not GLOBAL_MODELS.rank <= observer.rank <= AGGREGATE.rank:
            return None
        expected, step = expected_survivors(plan, self.dropout), self.sized.grid.step
        stays = 1.0 if self.drops == "first" else expected / plan.expected_cohort
        return GaussianLaw(
            clip_norm=self.sized.norm_bound * step,
            scale=1 / expected,
            noise_std=self.sized.sigma * step / expected,
            grid=step / expected,
            rate=plan.cohort_rate * stays,
        )

    def _survivors(self, invited: Tensor, rng: np.random.Generator) -> Tensor:
        """Who is left ``(replicas, rows)`` when a share of those invited, rounded down, drops out."""
        gone = [count - survivors_of(count, self.dropout) for count in range(invited.shape[1] + 1)]
        # Nobody who was not invited takes one of the places of those that drop out.
        places = uniform(rng, tuple(invited.shape)) if self.drops == "random" else torch.zeros(invited.shape)
        ranks = places.masked_fill(~invited, 2.0).argsort(dim=1, stable=True).argsort(dim=1)
        return invited & (ranks >= torch.tensor(gone)[invited.sum(1)].unsqueeze(1))

    def _noise(self, invited: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
        """Noise shares ``shape``, int64, for ``invited (replicas,)`` clients."""
        noise = torch.zeros(shape, dtype=torch.int64)
        for count in sorted(set(invited.tolist())):
            chosen = invited == count
            if count:
                drawn = self.noise_share(self.shares_needed(count), (int(chosen.sum()), *shape[1:]), rng)
                noise[chosen] = torch.from_numpy(drawn)
        return noise


@dataclass(frozen=True, kw_only=True)
class SecureSumDefense(ClippedDefense, ABC):
    """What the defenses of this family share: a client's privacy from the server, by noise that clients add.

    The claim: one client's update set to zero (zero-out: who takes part, and how many, is known to the server, and a
    client that left would take its noise along), against the server that sees masked words, their sum and who sent
    them. No amplification by sampling is claimed.

    Args:
        epsilon, delta: the budget of all rounds together.
        clip_norm: L2 bound of an update.
        bits: length of a word; the grid is the finest on which the sum and its noise do not wrap around.
        dropout: largest share of a cohort that may drop out, in [0, 1); as many do in each round.
        drops: who they are: "random", or always the "first" of the cohort, the worst case for all who stay.

    Raises (in prepare):
        ValueError: where fewer than two clients are expected in a round, words are too short for their sum, or epsilon
            is so large that it needs next to no noise.
    """

    bits: int = 20
    dropout: float = 0.5
    drops: str = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bits(self.bits)
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, Real) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}")
        if self.drops not in DROPS:
            raise ValueError(f"drops must be {nearest(str(self.drops), DROPS)}, got {self.drops!r}")

    def protected(self, kind: type[SecureSumProtection], sized: SizedGrid) -> SecureSumProtection:
        """The protection of that kind with this configuration."""
        return kind(clip_norm=self.clip_norm, dropout=self.dropout, drops=self.drops, sized=sized)

    def sized(self, plan: Plan) -> SizedGrid:
        """The grid for this plan, whose noise ``sigma_of`` keeps the budget. Raises ValueError as ``prepare`` does."""
        return size_grid(
            clip_norm=self.clip_norm,
            bits=self.bits,
            dim=plan.layout.dim,
            rows=most_clients(plan),
            survivors=least_survivors(plan, self.dropout),
            rounds=plan.rounds,
            sigma_of=lambda norm: self.sigma_of(norm, plan),
            largest_sigma=_FINEST,
        )

    def sigma_of(self, norm: float, plan: Plan) -> float:
        """Deviation of the sum's noise, in steps, that the budget needs at a sensitivity of ``norm`` steps."""
        raise TypeError(f"{type(self).__name__} does not define sigma_of(norm, plan)")

    def budget(self, plan: Plan) -> Budget:
        """What a calibration of ``accounting.integer_noise`` wants to know of a plan."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.rounds, "dimension": plan.layout.dim}

    def shares(self, plan: Plan) -> int:
        """Shares in the sum of the largest cohort: its survivors'."""
        return survivors_of(most_clients(plan), self.dropout)

    def stated_claim(
        self,
        plan: Plan,
        sized: SizedGrid,
        *,
        mechanism: str,
        accountant: str,
        source: str,
        curve: Curve | None = None,
        more: Mapping[str, Value] | None = None,
    ) -> Claim:
        """The claim of the family. Raises ValueError where its epsilon needs less noise than .3 norm bounds."""
        check_least_noise(sized.sigma / sized.norm_bound, epsilon=self.epsilon)
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=Unit.CLIENT,
            adjacency=Adjacency.ZERO_OUT,
            observer=SERVER,
            rounds=plan.rounds,
            dp_model="distributed",
            mechanism=mechanism,
            parameters={
                "clip_norm": self.clip_norm,
                "noise_multiplier": sized.sigma / sized.norm_bound,
                "norm_bound": sized.norm_bound * sized.grid.step,
                "step": sized.grid.step,
                "bits": self.bits,
                "dropout": self.dropout,
                "survivors": expected_survivors(plan, self.dropout),
                **(more or {}),
            },
            accountant=accountant,
            sampling="none assumed; who takes part does not depend on the data",
            trust="the server follows the protocol; survivors tell it neither their keys nor their noise",
            source=source,
            curve=curve,
        )


def survivors_of(invited: int, dropout: float) -> int:
    """Who is left of ``invited`` when a share drops out, rounded down as the decimal number reads: .3 of 10 are 3."""
    return invited - int(Fraction(str(dropout)) * invited)


def expected_survivors(plan: Plan, dropout: float) -> float:
    """What the sum is divided by: as many as are left, where cohorts are of a known size, else about the mean."""
    whole = _whole_cohort(plan)
    return plan.expected_cohort * survivors_of(whole, dropout) / whole


def least_survivors(plan: Plan, dropout: float) -> int:
    """Survivors of the expected cohort, rounded down.

    Raises:
        ValueError: where fewer than two clients are expected: the sum of one is its word.
    """
    if (whole := _whole_cohort(plan)) < 2:
        raise ValueError(f"a secure sum must have at least 2 clients a round, got {plan.expected_cohort:g} expected")
    return survivors_of(whole, dropout)


def _whole_cohort(plan: Plan) -> int:
    # .6 times 5 is a hair below 3.
    return max(1, math.floor(plan.expected_cohort + 1e-9))


def most_clients(plan: Plan) -> int:
    """The largest cohort that the plan's rule can draw."""
    return min(plan.cohort.size, plan.clients) if isinstance(plan.cohort, FixedSize) else plan.clients
