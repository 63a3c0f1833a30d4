"""Local defense: the budget split over rounds and coordinates by basic composition, and the claim that it signs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.observer import UPLOADS
from ...fl.plan import Plan
from ..defense import Defense, Prepared, check_positive
from ..randomisers.randomiser import check_count
from .number import NumberReport
from .protection import LocalProtection
from .sampled import SampledLaw

PER_NUMBER = 2.5
"""Budget from which a further coordinate is sent (Wang et al. 2019, Algorithm 4)."""
_MOST = 300.0


@dataclass(frozen=True, kw_only=True)
class LocalDefense(Defense):
    """Pure local DP of a client's whole report, over all rounds: any two updates, against the server that sees every
    upload; each round gets epsilon / rounds.
    """

    epsilon: float = 8.0
    radius: float = 0.01
    mechanism: ClassVar[str]
    source: ClassVar[str]

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_positive("radius", self.radius)

    def claim(self, plan: Plan, parameters: Mapping[str, Value]) -> Claim:
        """The claim over the plan's rounds; ``parameters`` beside the radius."""
        return Claim(
            epsilon=self.epsilon,
            delta=0.0,
            unit=Unit.REPORT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=UPLOADS,
            rounds=plan.rounds,
            dp_model="local",
            mechanism=self.mechanism,
            parameters={"radius": self.radius, "releases": plan.rounds, **parameters},
            accountant="basic composition of exact epsilons",
            sampling="none assumed",
            trust="nobody",
            source=self.source,
        )


@dataclass(frozen=True, kw_only=True)
class NumberDefense(LocalDefense):
    """Some coordinates of an update, drawn uniformly and without looking at it, each clipped to [-radius, radius] and
    randomised with an equal share of the round's budget. A family member says how.
    """

    def number(self, epsilon: float) -> NumberReport:
        """How a number in [-1, 1] is reported at ``epsilon``."""
        raise NotImplementedError

    def sampled(self, epsilon: float, dim: int) -> int:
        """How many of ``dim`` coordinates are sent at a round's ``epsilon``."""
        return max(1, min(dim, math.floor(epsilon / PER_NUMBER)))

    def prepare(self, plan: Plan) -> Prepared:
        protection = LocalProtection(release=self.release(plan))
        return Prepared(protection=protection, claims=(self.claim(plan, self.published(plan)),))

    def release(self, plan: Plan) -> SampledLaw:
        """The law of one client's report, calibrated."""
        count, epsilon = self.spent(plan)
        return SampledLaw(number=self.number(epsilon), radius=self.radius, coordinates=count)

    def spent(self, plan: Plan) -> tuple[int, float]:
        """How many numbers a round sends, and the epsilon of each."""
        each_round = self.epsilon / plan.rounds
        count = self.sampled(each_round, plan.layout.dim)
        if each_round / count > _MOST:
            raise ValueError(
                f"epsilon must leave a number at most {_MOST:g}, which hides nothing any more, got {self.epsilon} "
                f"for {plan.rounds} rounds of {count} numbers"
            )
        return count, each_round / count

    def published(self, plan: Plan) -> dict[str, Value]:
        """What the claim publishes of the mechanism."""
        count, epsilon = self.spent(plan)
        return {"coordinates": count, "number_epsilon": epsilon}


@dataclass(frozen=True, kw_only=True)
class SampledDefense(NumberDefense):
    """As many coordinates as Wang et al. (2019, Algorithm 4) send, one for every 2.5 of a round's budget, or as told.

    Args:
        epsilon: budget of all rounds together.
        radius: L-infinity bound of an update's coordinate.
        coordinates: sent in a round; None: max(1, min(d, floor(epsilon / rounds / 2.5))).
    """

    coordinates: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coordinates is not None:
            check_count("coordinates", self.coordinates, least=1)

    def sampled(self, epsilon: float, dim: int) -> int:
        if self.coordinates is None:
            return super().sampled(epsilon, dim)
        if self.coordinates > dim:
            raise ValueError(f"coordinates must be <= the {dim} that an update has, got {self.coordinates}")
        return self.coordinates
