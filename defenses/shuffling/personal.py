"""Define the base classes of defenses that noise each coordinate at local budgets: behind a shuffler (UniS, APES and
FLAME), and with budgets dealt to clients without one (LDP-Min and PLDP).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ...audit.claim import AS_PUBLISHED, Claim, Unit
from ...audit.observer import SHUFFLED
from ...fl.plan import Plan
from ...fl.protection import Protection
from ..accounting.counts import least_epsilon
from ..accounting.pld import Profile
from ..defense import Bound, Defense, Delta, Epsilon, Prepared, Variant, variant_of
from .budgeted import BudgetedReports, CoordinateNoise, check_coordinate_noise
from .claims import (
    AssuredCohort,
    Terms,
    check_budget_scale,
    check_clients,
    check_coordinate_delta,
    check_local,
    deal,
    largest_scale,
    local_pair,
    of_budget,
    published_total,
    representative_clients,
)


@dataclass(frozen=True, kw_only=True)
class ShuffledCoordinates(Defense, ABC):
    """A base class of defenses whose clients noise every coordinate at a local budget, and whose shuffler mixes each
    coordinate separately.

    Claims, replace-one: the whole report over all rounds, and one coordinate of one round. The adversary is the
    analyser behind the shuffler. A subclass defines the local budgets, what hides a client, and the paper's figures.

    Args:
        epsilon, delta: the budget of all coordinates of all rounds, to which the local ones are calibrated.
        coordinate_delta: delta of the claims about one coordinate.
        radius: clip bound of each coordinate of an update.
    """

    mechanism: ClassVar[str]
    source: ClassVar[str]
    published_source: ClassVar[str] = ""
    trust: ClassVar[str] = "the shuffler"
    unequal: ClassVar[bool] = False
    """Whether it matters which clients take part, because their budgets differ."""

    epsilon: Epsilon = 4.0
    delta: Delta = 1e-5
    coordinate_delta: float = 1e-8
    radius: Bound = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_coordinate_delta(self.coordinate_delta)

    def prepare(self, plan: Plan) -> Prepared:
        check_clients(plan.clients)
        published = variant_of(self) == AS_PUBLISHED
        factor, claims = self._published(plan) if published else self._corrected(plan)
        return Prepared(protection=self._protection(self._budgets(plan, factor)), claims=claims)

    @abstractmethod
    def _budgets(self, plan: Plan, factor: float) -> tuple[float, ...]:
        """The local budget of each client, which grows with a factor that is calibrated."""

    @property
    @abstractmethod
    def _given(self) -> float | None:
        """The factor, where it is not calibrated."""

    @abstractmethod
    def _protection(self, budgets: tuple[float, ...]) -> Protection:
        """The protection at these local budgets."""

    @abstractmethod
    def _hidden(self, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> Profile:
        """One coordinate of ``client`` among the others of a ``cohort``, shuffled."""

    def _averaged(self, budgets: tuple[float, ...]) -> Callable[[float], float]:
        """The paper's epsilon of one coordinate, the same for all clients, as a function of delta."""
        raise NotImplementedError

    def _costliest(self, budgets: tuple[float, ...]) -> tuple[int, ...]:
        """Clients of which one spends more than any other client."""
        return representative_clients(budgets)[-1:]

    @property
    def _else_too_large(self) -> str:
        """What an error adds where no local budget costs epsilon."""
        return ""

    def _stated(self, budgets: tuple[float, ...]) -> dict[int, dict[str, Any]]:
        """What the claims about the representative clients state about them."""
        return {0: {"local_epsilon": budgets[0]}}

    def _target(self) -> float | None:
        """The epsilon of the joint claim; None: that of the client, computed."""
        # A calibrated claim states the target; with a given local budget its cost is computed.
        return None if self._given else self.epsilon

    def _cohorts(self, plan: Plan) -> tuple[AssuredCohort, AssuredCohort]:
        """What is assured in all rounds, and in one."""
        return (
            AssuredCohort.of(plan, self.delta, rounds=plan.rounds, unequal=self.unequal),
            AssuredCohort.of(plan, self.coordinate_delta, rounds=1, unequal=self.unequal),
        )

    def _corrected(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms, (all_rounds, one_round) = self._terms(plan, self.source), self._cohorts(plan)
        whole: dict[str, Any] = {"delta": self.delta, "failure": all_rounds.failure}
        single: dict[str, Any] = {"delta": self.coordinate_delta, "failure": one_round.failure}

        def cost(factor: float) -> float:
            budgets = self._budgets(plan, factor)
            costs = (self._hidden(client, budgets, all_rounds) for client in self._costliest(budgets))
            return max(terms.total(one, **whole) for one in costs)

        factor = self._given or largest_scale(cost, self.epsilon, else_too_large=self._else_too_large)
        budgets, claims = self._budgets(plan, factor), list[Claim]()
        # A claim per client would be thousands of claims; a few clients represent the range of budgets.
        for client, stated in self._stated(budgets).items():
            joint = self._hidden(client, budgets, all_rounds)
            claims.append(terms.joint(joint, epsilon=self._target(), **whole, **stated))
            claims.append(terms.coordinate(self._hidden(client, budgets, one_round), **single, **stated))
        return factor, tuple(claims)

    def _published(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = self._terms(plan, self.published_source)

        def cost(factor: float) -> float:
            budgets = self._budgets(plan, factor)
            return published_total(
                self._averaged(budgets),
                coordinates=terms.releases,
                releases=terms.releases,
                largest=max(budgets),
                delta=self.delta,
            )

        factor = self._given or largest_scale(cost, self.epsilon)
        budgets = self._budgets(plan, factor)
        # The paper's claims assume that all clients take part; what is provable counts those that do.
        all_rounds, one_round = self._cohorts(plan)
        # They name one client, the one with the largest budget, for which the provable figure is computed.
        most, stated = list(self._stated(budgets).items())[-1]
        stated.pop("subjects", None)
        whole = terms.total(self._hidden(most, budgets, all_rounds), delta=self.delta, failure=all_rounds.failure)
        single = self._single(most, budgets, one_round)
        return factor, terms.published(
            (Unit.CLIENT, cost(factor), self.delta, whole),
            (Unit.COORDINATE, self._averaged(budgets)(self.coordinate_delta), self.coordinate_delta, single),
            parameters=stated,
        )

    def _single(self, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> float:
        """The epsilon of one coordinate of ``client`` in one round that is provable beside the paper's."""
        hidden = self._hidden(client, budgets, cohort)
        return least_epsilon(hidden.delta, self.coordinate_delta - cohort.failure)

    def _terms(self, plan: Plan, source: str) -> Terms:
        return Terms(
            plan=plan,
            observer=SHUFFLED,
            mechanism=f"{self.mechanism}, each coordinate shuffled",
            radius=self.radius,
            trust=self.trust,
            source=source,
        )


@dataclass(frozen=True, kw_only=True)
class OneBudget(ShuffledCoordinates, ABC):
    """A base class of defenses in which all clients have the same local budget.

    Args:
        local_epsilon: that budget, at most 50; where it is given nothing is calibrated, and the claims state its cost.
    """

    local_epsilon: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_local(self.local_epsilon)

    @property
    def _given(self) -> float | None:
        return self.local_epsilon

    def _budgets(self, plan: Plan, factor: float) -> tuple[float, ...]:
        return (factor,) * plan.clients


@dataclass(frozen=True, kw_only=True)
class PersonalBudgets(ShuffledCoordinates, ABC):
    """A base class of defenses in which every client has its own budget. A shuffler mixes each coordinate separately,
    and also the budgets.

    Claims, replace-one, of one client with the smallest, the median and the largest budget each: the whole report over
    all rounds, and one coordinate of one round. The adversary is the analyser behind the shuffler. Knowing all clients'
    budgets does not help it. A subclass defines the noise, what hides a client, and the paper's figures.

    Args:
        epsilon, delta: the total budget of the client that spends most; all local budgets are scaled to it.
        coordinate_delta: delta of the claims about one coordinate.
        budgets: one of Table 2's distributions; ``shuffling.claims.budgets.deal`` assigns them to clients.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.
        variant: "corrected", or "as_published": one claim for all, with clones counted as in the paper.
    """

    noise: ClassVar[CoordinateNoise]
    unequal = True

    budgets: str = "uniform2"
    budget_scale: float | None = None
    variant: Variant = "corrected"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget_scale(self.budgets, self.budget_scale)

    @property
    def _given(self) -> float | None:
        return self.budget_scale

    def _budgets(self, plan: Plan, factor: float) -> tuple[float, ...]:
        return deal(self.budgets, plan.clients, factor)

    def _protection(self, budgets: tuple[float, ...]) -> Protection:
        return BudgetedReports(radius=self.radius, budgets=budgets, noise=self.noise)

    def _stated(self, budgets: tuple[float, ...]) -> dict[int, dict[str, Any]]:
        return {client: of_budget(client, budgets) for client in representative_clients(budgets)}

    def _target(self) -> None:
        """None: each client's own epsilon is computed."""


@dataclass(frozen=True, kw_only=True)
class DealtBudgets(Defense, ABC):
    """A base class of defenses that deal the budgets of a public distribution to the clients, and calibrate a factor by
    which all budgets are multiplied.
    """

    epsilon: Epsilon = 4.0
    delta: Delta = 1e-5
    budgets: str = "uniform2"
    budget_scale: float | None = None
    radius: Bound = 0.1
    variant: Variant = "corrected"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget_scale(self.budgets, self.budget_scale, noise=self.noise_scale)

    @property
    def noise_scale(self) -> float:
        """The noise of a report, relative to the noise that its budget alone requires."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class UnshuffledBudgets(DealtBudgets, ABC):
    """A base class of LDP-Min and PLDP, two baselines without a shuffler; it computes the epsilon that can be proved
    for their reports.
    """

    noise: str = CoordinateNoise.CLIP_LAPLACE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_coordinate_noise(self.noise)

    def _provable(self, terms: Terms, budget: float) -> float:
        """The epsilon of all coordinates of all rounds, each at this local ``budget``."""
        return terms.total(local_pair(self.noise, budget), delta=self.delta)
