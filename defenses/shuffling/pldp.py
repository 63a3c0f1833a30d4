"""PLDP perturbs each coordinate at its client's own budget (local DP), without a shuffler (Liu et al. 2023)."""

from functools import partial

from ...audit.claim import AS_PUBLISHED, Unit
from ...fl.plan import Plan
from ..defense import Prepared
from .budgeted import BudgetedReports
from .claims import deal, largest_scale, local_pair, local_terms
from .personal import UnshuffledBudgets

SUMMED = "sum over coordinates and rounds"


class PLDP(UnshuffledBudgets):
    """A defense in which every client has its own local DP budget; without a shuffler there is no amplification.

    Claims: any two reports of a client, over all coordinates and rounds; one claim for a client with the smallest, the
    median and the largest budget each. The adversary is the server, which observes individual updates.

    Args:
        epsilon, delta: the total budget of the client with the largest local budget; all local budgets are scaled to
            it.
        budgets: one of Table 2's distributions; ``shuffling.claims.budgets.deal`` assigns them to clients.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.
        noise: "clip_laplace", as in the whole family, or "laplace", the paper's own.
        variant: "corrected", or "as_published": one claim for all, the largest budget summed over all coordinates.

    Errata:
        - Loose but valid: eps_uc 7850 of Table 3, the sum of 7850 coordinates at budget 1. The sum is exact at delta 0;
          at the table's delta 3.6e-5 one round of clip-Laplace composes to at most 1484, and one of classic Laplace to
          at most 3171. Here: composition by privacy-loss distributions, rounded up: our accounting gives 1485 and 3173.
    """

    def prepare(self, plan: Plan) -> Prepared:
        terms = local_terms(plan, self.radius, noise=self.noise)
        # The client with the largest budget spends most, so the calibration needs it alone.
        largest, published = max(deal(self.budgets, plan.clients)), self.variant == AS_PUBLISHED

        def cost(scale: float) -> float:
            return scale * largest * terms.releases if published else self._provable(terms, scale * largest)

        scale = self.budget_scale or largest_scale(cost, self.epsilon, largest=largest)
        budgets = deal(self.budgets, plan.clients, scale)
        if published:
            number = Unit.REPORT, cost(scale), self.delta, self._provable(terms, scale * largest)
            claims = terms.published(number, parameters={"local_epsilon": scale * largest}, accountant=SUMMED)
        else:
            claims = terms.of_clients(partial(local_pair, self.noise), budgets, delta=self.delta)
        protection = BudgetedReports(radius=self.radius, budgets=budgets, shuffled=False, noise=self.noise)
        return Prepared(protection=protection, claims=claims)
