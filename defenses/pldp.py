"""PLDP: personalised local DP without a shuffler, every coordinate at its client's own budget (Liu et al. 2023)."""

from dataclasses import dataclass

from ..fl.plan import Plan
from .accounting.dots import many_epsilon
from .defense import Defense, Prepared, check_bound, check_budget
from .shuffling.amplification import LocalPair, largest_scale
from .shuffling.budgeted import BudgetedReports
from .shuffling.budgets import check_wishes, deal, spokesmen
from .shuffling.terms import local_terms


@dataclass(frozen=True, kw_only=True)
class PLDP(Defense):
    """Personalised budgets, no amplification.

    Claims: any two reports of a client, over all coordinates and rounds, against the server that sees every upload;
    one for a client of the smallest, the median and the largest budget each.

    Args:
        epsilon, delta: what the client with the largest budget spends on everything; all budgets are scaled to that.
        budgets: one of Table 2's distributions: ``shuffling.budgets.deal`` says who gets which.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.

    Errata:
        - Paper, Table 3: eps_uc 7850 at budget 1 and 7850 coordinates, the sum. Right: valid, but at delta 3.6e-5 one
          round of clip-Laplace composes to 1484.5.
        - Paper, Baselines: the classic Laplace mechanism. Right: clip-Laplace throughout, so that only budgets and the
          shuffler differ.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    budgets: str = "uniform2"
    budget_scale: float | None = None
    radius: float = 0.1

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_bound("radius", self.radius)
        check_wishes(self.budgets, self.budget_scale)

    def prepare(self, plan: Plan) -> Prepared:
        terms = local_terms(plan, self.radius)
        largest = max(deal(self.budgets, plan.clients))

        def cost(scale: float) -> float:
            return many_epsilon(LocalPair(scale * largest), releases=terms.releases, delta=self.delta)

        scale = self.budget_scale or largest_scale(cost, self.epsilon, largest=largest)
        budgets = deal(self.budgets, plan.clients, scale)
        claims = tuple(
            terms.joint(
                LocalPair(budgets[client]),
                delta=self.delta,
                subjects=f"clients of budget {budgets[client]:.4g}",
                client=client,
                local_epsilon=budgets[client],
            )
            for client in spokesmen(budgets)
        )
        protection = BudgetedReports(radius=self.radius, budgets=budgets, shuffled=False)
        return Prepared(protection=protection, claims=claims)
