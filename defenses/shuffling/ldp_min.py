"""LDP-Min gives all clients local DP at the smallest of their budgets, without a shuffler (Liu et al. 2023)."""

from ...audit.claim import AS_PUBLISHED, Unit
from ...fl.plan import Plan
from ..accounting.pure import advanced_composition
from ..defense import Prepared
from .budgeted import BudgetedReports
from .claims import deal, largest_scale, local_pair, local_terms
from .personal import UnshuffledBudgets

ADVANCED = "advanced composition (Lemma 2)"


class LDPMin(UnshuffledBudgets):
    """A defense that gives all clients the same budget, the smallest one of a distribution of budgets.

    The claim: any two reports of a client, over all coordinates and rounds. The adversary is the server, which observes
    individual updates.

    Args:
        epsilon, delta: the budget of all coordinates of all rounds, to which the local one is calibrated.
        budgets: one of Table 2's distributions, of which the smallest budget counts.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.
        noise: "clip_laplace", as in the whole family, or "laplace", the paper's own.
        variant: "corrected", or "as_published": the paper's composition, which is valid and loose.

    Errata:
        - Loose but valid: eps_uc 40.1 of Table 3, at budget .05 and 7850 coordinates, by advanced composition (Lemma
          2). At delta 3.6e-5 clip-Laplace composes to 12.8, classic Laplace to 26.4. Here: composition by privacy-loss
          distributions.
    """

    def prepare(self, plan: Plan) -> Prepared:
        terms, smallest = local_terms(plan, self.radius, noise=self.noise), min(deal(self.budgets, plan.clients))
        published = self.variant == AS_PUBLISHED

        def as_published(local: float) -> float:
            return advanced_composition(epsilon=local, releases=terms.releases, slack=self.delta)

        def cost(scale: float) -> float:
            local = scale * smallest
            return as_published(local) if published else self._provable(terms, local)

        local = smallest * (self.budget_scale or largest_scale(cost, self.epsilon, largest=smallest))
        if published:
            # The paper's own number, together with what is provable for the same noise.
            number = Unit.REPORT, as_published(local), self.delta, self._provable(terms, local)
            claims = terms.published(number, parameters={"local_epsilon": local}, accountant=ADVANCED)
        else:
            target = None if self.budget_scale else self.epsilon
            pair = local_pair(self.noise, local)
            claims = (terms.joint(pair, delta=self.delta, epsilon=target, local_epsilon=local),)
        protection = BudgetedReports(
            radius=self.radius, budgets=(local,) * plan.clients, shuffled=False, noise=self.noise
        )
        return Prepared(protection=protection, claims=claims)
