"""UniS shuffles each coordinate, noised by clip-Laplace at one budget for all clients (Liu et al. 2023, baseline)."""

from dataclasses import dataclass

from ...audit.claim import Claim, Unit
from ...audit.observer import SHUFFLED
from ...fl.plan import Plan
from ..accounting.pld import many_epsilon
from ..accounting.shuffled import shuffled
from ..defense import Defense, Prepared, check_bound, check_budget, check_variant
from .budgeted import BudgetedReports
from .claims import (
    AssuredCohort,
    Terms,
    among_equals,
    check_clients,
    check_coordinate_delta,
    check_local,
    largest_scale,
    published_total,
)


@dataclass(frozen=True, kw_only=True)
class UniS(Defense):
    """A defense with a shuffler in which all clients have the same budget.

    Claims, replace-one: a client's whole report over all rounds, and one coordinate of one round. The adversary is the
    analyser behind the shuffler. Each coordinate is hidden among clones of it (Feldman, McMillan, Talwar 2021,
    evaluated exactly), and coordinates and rounds compose by privacy-loss distributions.

    Args:
        epsilon, delta: the budget of all coordinates of all rounds, to which the local one is calibrated.
        coordinate_delta: delta of the claim about one coordinate.
        local_epsilon: budget of one coordinate, at most 50; where it is given nothing is calibrated, and the claims
            state its cost.
        radius: clip bound of each coordinate of an update.
        variant: "corrected", or "as_published": the clones of one coordinate and advanced composition.

    Errata:
        - Slip: "the privacy bound refers to Eq. (2)" (Baselines), which gives .241 where Table 3 has eps_c .069, at
          10,000 clients, budget 1, delta 1e-8. The same paragraph lists the numerical result of Feldman et al. 2022,
          which gives .0689. Here: the clones evaluated numerically.
        - Loose but valid: eps_uc 76.9 of Table 3, by advanced composition over 7850 coordinates. With one budget of 1
          for all clients it is 5.81 at delta 3.6e-5. Here: composition by privacy-loss distributions.
        - Not stated: a bound for classic Laplace noise at unequal budgets, which UniS runs (Baselines); footnote 1
          calls the printed eps_c "an approximation". Here: one budget for all, clip-Laplace; ``unis_unequal`` runs what
          the paper runs.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    coordinate_delta: float = 1e-8
    local_epsilon: float | None = None
    radius: float = 0.1
    variant: str = "corrected"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_coordinate_delta(self.coordinate_delta)
        check_bound("radius", self.radius)
        check_variant(self.variant)
        check_local(self.local_epsilon)

    def prepare(self, plan: Plan) -> Prepared:
        check_clients(plan.clients)
        published = self.variant == "as_published"
        local, claims = self._published(plan) if published else self._corrected(plan)
        protection = BudgetedReports(radius=self.radius, budgets=(local,) * plan.clients, shuffled=True)
        return Prepared(protection=protection, claims=claims)

    def _corrected(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = self._terms(plan, "Feldman, McMillan, Talwar 2021, Section 3; Zhu, Dong, Wang 2022, Theorem 10")
        all_rounds, one_round = (
            AssuredCohort.of(plan, delta, rounds=rounds)
            for delta, rounds in ((self.delta, plan.rounds), (self.coordinate_delta, 1))
        )

        def cost(epsilon0: float) -> float:
            release = among_equals(others=all_rounds.others, epsilon0=epsilon0)
            return many_epsilon(release, releases=terms.releases, delta=self.delta - all_rounds.failure)

        local = self.local_epsilon or largest_scale(cost, self.epsilon)
        return local, (
            terms.joint(
                among_equals(others=all_rounds.others, epsilon0=local),
                delta=self.delta,
                failure=all_rounds.failure,
                epsilon=None if self.local_epsilon else self.epsilon,
                local_epsilon=local,
            ),
            terms.coordinate(
                among_equals(others=one_round.others, epsilon0=local),
                delta=self.coordinate_delta,
                failure=one_round.failure,
                local_epsilon=local,
            ),
        )

    def _published(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = self._terms(plan, "Liu et al. 2023, equation 2 and Lemma 2, as published")

        def cost(epsilon0: float) -> float:
            return published_total(
                shuffled(clients=plan.clients, epsilon0=epsilon0).epsilon,
                coordinates=terms.releases,
                releases=terms.releases,
                largest=epsilon0,
                delta=self.delta,
            )

        local = self.local_epsilon or largest_scale(cost, self.epsilon)
        one = shuffled(clients=plan.clients, epsilon0=local).epsilon(self.coordinate_delta)
        # The paper's claims assume that all clients take part; what is provable counts those that do.
        all_rounds = AssuredCohort.of(plan, self.delta, rounds=plan.rounds)
        one_round = AssuredCohort.of(plan, self.coordinate_delta, rounds=1)
        release = among_equals(others=all_rounds.others, epsilon0=local)
        whole = many_epsilon(release, releases=terms.releases, delta=self.delta - all_rounds.failure)
        clones = shuffled(clients=one_round.others + 1, epsilon0=local)
        single = clones.epsilon(self.coordinate_delta - one_round.failure)
        return local, terms.published(
            (Unit.CLIENT, cost(local), self.delta, whole),
            (Unit.COORDINATE, one, self.coordinate_delta, single),
            parameters={"local_epsilon": local},
        )

    def _terms(self, plan: Plan, source: str) -> Terms:
        return Terms(
            plan=plan,
            observer=SHUFFLED,
            mechanism="clip-Laplace on each coordinate, each coordinate shuffled",
            radius=self.radius,
            trust="the shuffler",
            source=source,
        )
