"""Split a pure-DP budget over rounds and coordinates, and state the resulting local DP claim."""

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...audit.claim import AS_PUBLISHED, Adjacency, Claim, Unit, Value
from ...audit.observer import UPLOADS
from ...fl.plan import Plan
from ..accounting.pure import BASIC_COMPOSITION, EXACT_COMPOSITION, each_of
from ..accounting.spending import Spending, pure_spending
from ..defense import Defense, Prepared, check_bound, check_delta, check_epsilon, variant_of
from ..randomisers.randomiser import check_given_count
from .number import NumberReport
from .protection import LocalProtection
from .sampled import SampledLaw

PER_NUMBER = 2.5
"""Budget per coordinate: one more coordinate is sent for each 2.5 of a round's epsilon (Wang et al. 2019,
Algorithm 4).
"""
_MOST = 300.0


@dataclass(frozen=True, kw_only=True)
class LocalDefense(Defense, ABC):
    """A base class of defenses that give pure local DP for all of a client's reports together, for any two updates. The
    adversary is the server, which observes individual updates.

    Each release has a pure epsilon. At delta 0 all releases get equal parts of the claimed epsilon; at another delta
    each may spend what exact composition allows.
    """

    epsilon: float = 8.0
    delta: float = 0.0
    radius: float = 0.01
    mechanism: ClassVar[str]
    source: ClassVar[str]

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        # Delta 0 is allowed here, unlike for Gaussian noise, but ``false`` is not a number.
        if isinstance(self.delta, bool) or self.delta != 0:
            check_delta(self.delta)
        check_bound("radius", self.radius)

    def claim(self, plan: Plan, parameters: Mapping[str, Value]) -> Claim:
        """Return the local DP claim over all rounds of the plan; the claim states as public parameters the radius to
        which coordinates are clipped and the entries of ``parameters``.
        """
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=Unit.REPORT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=UPLOADS,
            rounds=plan.rounds,
            dp_model="local",
            mechanism=self.mechanism,
            parameters={"radius": self.radius, "releases": plan.participations, **parameters},
            accountant=EXACT_COMPOSITION if self.delta else BASIC_COMPOSITION,
            sampling="none assumed",
            trust="nobody",
            source=f"{self.source}; composition: Kairouz, Oh, Viswanath 2015" if self.delta else self.source,
        )

    def each_of(self, releases: int) -> float:
        """Return the epsilon that each of ``releases`` releases may spend so that all together stay within the
        budget.
        """
        return each_of(releases, epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, kw_only=True)
class NumberDefense(LocalDefense, ABC):
    """A base class of defenses that send some coordinates of an update, drawn uniformly and independently of the data;
    each is clipped to [-radius, radius] and randomised with an equal share of the budget. A subclass defines the
    randomiser.
    """

    def number(self, epsilon: float) -> NumberReport:
        """Return the randomiser that reports a number in [-1, 1] at the given ``epsilon``."""
        raise NotImplementedError

    def sampled(self, epsilon: float, dim: int) -> int:
        """Return how many of an update's ``dim`` coordinates a client sends if one round has the budget ``epsilon``."""
        return max(1, min(dim, math.floor(epsilon / PER_NUMBER)))

    def prepare(self, plan: Plan) -> Prepared:
        protection = LocalProtection(release=self.release(plan))
        claim = self.claim(plan, self.published(plan))
        return Prepared(protection=protection, claims=(claim,), spending=self.spending(plan, claim))

    def spending(self, plan: Plan, claim: Claim) -> dict[str, Spending]:
        """Return a dictionary from the claim's id to a function that computes the epsilon of a number of rounds; the
        dictionary is empty for a paper's own claim, which may not compose over rounds.
        """
        # A published budget may not be composed over rounds at all.
        if variant_of(self) == AS_PUBLISHED:
            return {}
        count, epsilon = self.spent(plan)
        return pure_spending(claim, each=epsilon, releases=count, participations=plan.cohort.participations)

    def release(self, plan: Plan) -> SampledLaw:
        """Return the distribution of one client's report, calibrated to the budget."""
        count, epsilon = self.spent(plan)
        return SampledLaw(number=self.number(epsilon), radius=self.radius, coordinates=count)

    def spent(self, plan: Plan) -> tuple[int, float]:
        """Return how many numbers a client sends per round, and the epsilon that each number spends."""
        # First the number of coordinates at a round's epsilon, then the exact share of each number.
        count = self.sampled(self.each_of(plan.participations), plan.layout.dim)
        epsilon = self.each_of(plan.participations * count)
        if epsilon > _MOST:
            raise ValueError(
                f"each sent number must have an epsilon of at most {_MOST:g}, because a larger one hides nothing; got "
                f"a total epsilon of {self.epsilon} for {plan.participations} rounds of {count} numbers each"
            )
        return count, epsilon

    def published(self, plan: Plan) -> dict[str, Value]:
        """Return the mechanism's parameters that the claim makes public."""
        count, epsilon = self.spent(plan)
        return {"coordinates": count, "number_epsilon": epsilon}


@dataclass(frozen=True, kw_only=True)
class SampledDefense(NumberDefense, ABC):
    """A base class of defenses that send one coordinate for every 2.5 of a round's epsilon, as in Wang et al. (2019,
    Algorithm 4), or a configured number of coordinates.

    Args:
        epsilon, delta: budget of all rounds together.
        radius: L-infinity bound of an update's coordinate.
        coordinates: sent per round; None: max(1, min(d, floor(a round's epsilon / 2.5))).
    """

    coordinates: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coordinates is not None:
            check_given_count("coordinates", self.coordinates, least=1)

    def sampled(self, epsilon: float, dim: int) -> int:
        if self.coordinates is None:
            return super().sampled(epsilon, dim)
        if self.coordinates > dim:
            raise ValueError(
                f"coordinates must be <= {dim}, the number of coordinates of an update, got {self.coordinates}"
            )
        return self.coordinates
