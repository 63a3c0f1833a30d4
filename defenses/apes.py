"""APES: personalised budgets behind a shuffler, each coordinate by clip-Laplace at its client's (Liu et al. 2023)."""

from dataclasses import dataclass

from ..audit.claim import Claim, Unit
from ..audit.observer import SHUFFLED
from ..fl.plan import Plan
from .accounting.counts import least_epsilon
from .accounting.dots import many_epsilon
from .accounting.heterogeneous import published_bound
from .defense import Defense, Prepared, check_bound, check_budget, check_variant
from .shuffling.amplification import Crowd, among_unequals, check_clients, largest_scale
from .shuffling.budgeted import BudgetedReports
from .shuffling.budgets import check_coordinate_delta, check_wishes, deal, spokesmen
from .shuffling.published import published_total
from .shuffling.terms import Terms


@dataclass(frozen=True, kw_only=True)
class APES(Defense):
    """Personalised budgets behind a shuffler, which shuffles each coordinate, and the budgets, by themselves.

    Claims, replace-one, against the analyser behind the shuffler, for a client of the smallest, the median and the
    largest budget each: the whole report over all rounds, and one coordinate of one round. Who knows everybody's
    budget learns no more.

    The server stretches the mean of all reports back (equation 1, ``shuffling.calibration``): without bias where all
    clients send the same value, else with the bias that ``calibration_quality`` states.

    Args:
        epsilon, delta: what the client with the largest budget spends on everything; all budgets are scaled to that.
        coordinate_delta: delta of the claims about one coordinate.
        budgets: one of Table 2's distributions: ``shuffling.budgets.deal`` says who gets which.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.
        variant: "corrected", or "as_published": one claim for all, from clones averaged over everybody's mechanism.

    Errata:
        - Paper, Lemma 5 and Theorem 4: reports that resemble any client's mechanism, averaged over all, hide client 1.
          Right: only clones of client 1's own mechanism do; .0596 for a budget of 1 at Uniform2, 10,000 clients, delta
          1e-8, where the average gives .0571.
        - Paper, Lemma 4: exponent max of both budgets. Right, and tighter: the neighbour's own.
        - Paper, Lemma 6: the last term is the expected number of clones. Right: 8 over it, as in Theorem 4; neither
          closed form is used here.
        - Paper, Table 3: eps_c .057, which Theorem 4's closed form does not give (.205). Right: the numerical clones.
        - Paper, Table 3: eps_uc 57.6 by advanced composition over 7850 coordinates. Right: 4.93 at delta 3.6e-5, by
          privacy-loss distributions.
        - Paper, equation 1: calibration by the mean of equal gradients. Right: biased where gradients and budgets
          differ together; at Uniform2 it multiplies the reports' own noise by 8.
    """

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
        check_wishes(self.budgets, self.budget_scale)
        check_variant(self.variant)

    def prepare(self, plan: Plan) -> Prepared:
        check_clients(plan.clients)
        published = self.variant == "as_published"
        scale, claims = self._published(plan) if published else self._corrected(plan)
        budgets = deal(self.budgets, plan.clients, scale)
        return Prepared(protection=BudgetedReports(radius=self.radius, budgets=budgets, shuffled=True), claims=claims)

    def _corrected(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = self._terms(plan, "Liu et al. 2023, Lemma 4; clones of the client's own mechanism, Poisson-binomial")
        all_rounds = Crowd.of(plan, self.delta, rounds=plan.rounds)
        one_round = Crowd.of(plan, self.coordinate_delta, rounds=1)

        def cost(scale: float) -> float:
            budgets = deal(self.budgets, plan.clients, scale)
            release = among_unequals(client=spokesmen(budgets)[-1], budgets=budgets, others=all_rounds.others)
            return many_epsilon(release, releases=terms.releases, delta=self.delta - all_rounds.failure)

        scale = self.budget_scale or largest_scale(cost, self.epsilon)
        budgets, claims = deal(self.budgets, plan.clients, scale), list[Claim]()
        for client in spokesmen(budgets):
            for crowd, delta, signed in (
                (all_rounds, self.delta, terms.joint),
                (one_round, self.coordinate_delta, terms.coordinate),
            ):
                claims.append(
                    signed(
                        among_unequals(client=client, budgets=budgets, others=crowd.others),
                        delta=delta,
                        failure=crowd.failure,
                        subjects=f"clients of budget {budgets[client]:.4g}",
                        client=client,
                        local_epsilon=budgets[client],
                    )
                )
        return scale, tuple(claims)

    def _published(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = self._terms(plan, "Liu et al. 2023, Theorem 4 and Lemma 2, as published")

        def cost(scale: float) -> float:
            budgets = deal(self.budgets, plan.clients, scale)
            return published_total(
                published_bound(budgets).epsilon,
                coordinates=terms.releases,
                releases=terms.releases,
                largest=max(budgets),
                delta=self.delta,
            )

        scale = self.budget_scale or largest_scale(cost, self.epsilon)
        budgets = deal(self.budgets, plan.clients, scale)
        one, most = published_bound(budgets).epsilon(self.coordinate_delta), spokesmen(budgets)[-1]
        own = among_unequals(client=most, budgets=budgets, others=plan.clients - 1)
        return scale, terms.published(
            (Unit.CLIENT, cost(scale), self.delta, many_epsilon(own, releases=terms.releases, delta=self.delta)),
            (Unit.COORDINATE, one, self.coordinate_delta, least_epsilon(own.delta, self.coordinate_delta)),
            parameters={"client": most, "local_epsilon": budgets[most]},
        )

    def _terms(self, plan: Plan, source: str) -> Terms:
        return Terms(
            plan=plan,
            observer=SHUFFLED,
            mechanism="clip-Laplace on each coordinate at the client's own budget, each coordinate shuffled",
            radius=self.radius,
            trust="the shuffler",
            source=source,
        )
