"""Define the base class of APES and of UniS, a baseline in the APES paper; both use a shuffler.

Define the base class of LDP-Min and PLDP, which give local DP to every coordinate without a shuffler.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ...audit.claim import Claim, Unit
from ...audit.observer import SHUFFLED
from ...fl.plan import Plan
from ..accounting.counts import least_epsilon
from ..accounting.pld import Profile, many_epsilon
from ..defense import Defense, Prepared, check_bound, check_budget, check_variant
from .budgeted import BudgetedReports, CoordinateNoise, check_coordinate_noise
from .claims import (
    AssuredCohort,
    Terms,
    check_budget_scale,
    check_clients,
    check_coordinate_delta,
    deal,
    largest_scale,
    local_pair,
    published_total,
    representative_clients,
)


@dataclass(frozen=True, kw_only=True)
class PersonalBudgets(Defense, ABC):
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
    mechanism: ClassVar[str]
    source: ClassVar[str]
    published_source: ClassVar[str]

    epsilon: float = 4.0
    delta: float = 1e-5
    coordinate_delta: float = 1e-8
    budgets: str = "uniform2"
    budget_scale: float | None = None
    radius: float = 0.1
    variant: str = "corrected"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_coordinate_delta(self.coordinate_delta)
        check_bound("radius", self.radius)
        check_budget_scale(self.budgets, self.budget_scale)
        check_variant(self.variant)

    def prepare(self, plan: Plan) -> Prepared:
        check_clients(plan.clients)
        published = self.variant == "as_published"
        scale, claims = self._published(plan) if published else self._corrected(plan)
        budgets = deal(self.budgets, plan.clients, scale)
        protection = BudgetedReports(radius=self.radius, budgets=budgets, shuffled=True, noise=self.noise)
        return Prepared(protection=protection, claims=claims)

    @abstractmethod
    def _hidden(self, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> Profile:
        """One coordinate of ``client`` among the others of a ``cohort``, shuffled."""

    def _costliest(self, budgets: tuple[float, ...]) -> tuple[int, ...]:
        """Clients of which one spends more than any other client."""
        return representative_clients(budgets)[-1:]

    @abstractmethod
    def _averaged(self, budgets: tuple[float, ...]) -> Callable[[float], float]:
        """The paper's epsilon of one coordinate, the same for all clients, as a function of delta."""

    def _corrected(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = self._terms(plan, self.source)
        all_rounds = AssuredCohort.of(plan, self.delta, rounds=plan.rounds, unequal=True)
        one_round = AssuredCohort.of(plan, self.coordinate_delta, rounds=1, unequal=True)

        def cost(scale: float) -> float:
            budgets = deal(self.budgets, plan.clients, scale)
            return max(
                many_epsilon(
                    self._hidden(client, budgets, all_rounds),
                    releases=terms.releases,
                    delta=self.delta - all_rounds.failure,
                )
                for client in self._costliest(budgets)
            )

        scale = self.budget_scale or largest_scale(cost, self.epsilon)
        budgets, claims = deal(self.budgets, plan.clients, scale), list[Claim]()
        # A claim per client would be thousands of claims; three clients represent the range of budgets.
        for client in representative_clients(budgets):
            for cohort, delta, stated in (
                (all_rounds, self.delta, terms.joint),
                (one_round, self.coordinate_delta, terms.coordinate),
            ):
                claims.append(
                    stated(
                        self._hidden(client, budgets, cohort),
                        delta=delta,
                        failure=cohort.failure,
                        subjects=f"clients of budget {budgets[client]:.4g}",
                        client=client,
                        local_epsilon=budgets[client],
                    )
                )
        return scale, tuple(claims)

    def _published(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = self._terms(plan, self.published_source)

        def cost(scale: float) -> float:
            budgets = deal(self.budgets, plan.clients, scale)
            return published_total(
                self._averaged(budgets),
                coordinates=terms.releases,
                releases=terms.releases,
                largest=max(budgets),
                delta=self.delta,
            )

        scale = self.budget_scale or largest_scale(cost, self.epsilon)
        budgets = deal(self.budgets, plan.clients, scale)
        # The published claims name one client, the one with the largest budget, for which the provable figure is
        # computed.
        one, most = self._averaged(budgets)(self.coordinate_delta), representative_clients(budgets)[-1]
        all_rounds = AssuredCohort.of(plan, self.delta, rounds=plan.rounds, unequal=True)
        one_round = AssuredCohort.of(plan, self.coordinate_delta, rounds=1, unequal=True)
        whole = many_epsilon(
            self._hidden(most, budgets, all_rounds),
            releases=terms.releases,
            delta=self.delta - all_rounds.failure,
        )
        hidden = self._hidden(most, budgets, one_round)
        single = least_epsilon(hidden.delta, self.coordinate_delta - one_round.failure)
        return scale, terms.published(
            (Unit.CLIENT, cost(scale), self.delta, whole),
            (Unit.COORDINATE, one, self.coordinate_delta, single),
            parameters={"client": most, "local_epsilon": budgets[most]},
        )

    def _terms(self, plan: Plan, source: str) -> Terms:
        return Terms(
            plan=plan,
            observer=SHUFFLED,
            mechanism=f"{self.mechanism} on each coordinate at the client's own budget, each coordinate shuffled",
            radius=self.radius,
            trust="the shuffler",
            source=source,
        )


@dataclass(frozen=True, kw_only=True)
class UnshuffledBudgets(Defense, ABC):
    """A base class of LDP-Min and PLDP, two baselines without a shuffler; it computes the epsilon that can be proved
    for their reports.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    budgets: str = "uniform2"
    budget_scale: float | None = None
    radius: float = 0.1
    noise: str = CoordinateNoise.CLIP_LAPLACE
    variant: str = "corrected"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_bound("radius", self.radius)
        check_budget_scale(self.budgets, self.budget_scale)
        check_coordinate_noise(self.noise)
        check_variant(self.variant)

    def _provable(self, terms: Terms, budget: float) -> float:
        """The epsilon of all coordinates of all rounds, each at this local ``budget``."""
        return many_epsilon(local_pair(self.noise, budget), releases=terms.releases, delta=self.delta)
