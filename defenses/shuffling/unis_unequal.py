"""UniS as published shuffles each coordinate with Laplace noise at the client's own budget (Liu et al. 2023)."""

from collections.abc import Callable

from ...fl.plan import Plan
from ...fl.sampling import Epoch
from ..accounting.pld import Profile
from ..accounting.shuffled import shuffled
from ..defense import Prepared
from .budgeted import CoordinateNoise
from .claims import AssuredCohort, among_unequals, representative_clients
from .personal import PersonalBudgets


class UniSUnequal(PersonalBudgets):
    """A defense with a shuffler in which each client adds classic Laplace noise at its own budget; in contrast, the
    defense ``unis`` has one budget for all clients.

    Its model equals that of PLDP, because a shuffler does not change a sum. The claims are those of APES.

    Args:
        epsilon, delta: the total budget of the client with the smallest or the largest local budget, whichever spends
            more; all local budgets are scaled to it. Clients in between spend less.
        coordinate_delta: delta of the claims about one coordinate.
        budgets: one of Table 2's distributions; ``shuffling.claims.budgets.deal`` assigns them to clients.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.
        variant: "corrected", or "as_published": one claim for all, as if all clients had the largest budget.

    Errata:
        - Not stated: in the text read, without Appendix A, a proof of eps_c .069 of Table 3, with all clients taken to
          be at the largest budget. Footnote 1 calls it an approximation, not a bound: "best considered as an
          approximation when the" budgets "of different users are very similar to each other". A bound needs a proof,
          because noise wider than one's own makes a clone less often. At Uniform2, 10,000 clients, delta 1e-8, the
          number holds: for a budget of 1 the truth lies between .0359 and .0590. At Gauss2 (of Figure 2(a), not of
          Table 3) it is open whether the approximation holds: it gives .0689, and the truth is at most .0712. Here:
          the privacy blanket of the client's own mechanism, .0667 for a budget of 1 at Uniform2, and .05, the local
          budget itself, for the smallest.
        - Slip: the true central epsilon "is unbounded" (footnote 1; "Baseline Results" has "may be unbounded"). The
          divergence between two clients' noise may be; the epsilon of the shuffled reports is at most the local one, as
          the section "Shuffle-based Privacy" has it. If the paper means that no bound is known, it is right. Here:
          no claim about one coordinate exceeds the local budget.
        - Loose but valid: eps_uc 76.9 of Table 3 for all clients. At delta 3.6e-5 a budget of 1 has at most 5.60, and
          the smallest at most 26.4, the same as without a shuffler: no report with less noise is of its blanket, and
          nothing better is proved here (with a hundred smaller budgets, 2.04). Here: composition by privacy-loss
          distributions.
    """

    noise = CoordinateNoise.LAPLACE
    mechanism = "Laplace noise on each coordinate at the client's own budget"
    source = "Balle et al. 2019, Lemma 5.3, of the client's own mechanism, for reports with more noise"
    published_source = "Liu et al. 2023, equation 2 and Lemma 2, as published"

    def prepare(self, plan: Plan) -> Prepared:
        if self.budget_scale is None and isinstance(plan.cohort, Epoch):
            raise ValueError(
                "cohort must be Poisson or full if budgets are calibrated, because in the batches of a pass a client "
                f"between the smallest and the largest budget may spend most: set budget_scale, got {plan.cohort}"
            )
        return super().prepare(plan)

    def _hidden(self, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> Profile:
        return among_unequals(client=client, budgets=budgets, cohort=cohort, noise=self.noise)

    def _costliest(self, budgets: tuple[float, ...]) -> tuple[int, ...]:
        # Reports of the blanket grow in number with the budget, from none for the smallest, and so does what they hide.
        return representative_clients(budgets)[:1] + representative_clients(budgets)[-1:]

    def _averaged(self, budgets: tuple[float, ...]) -> Callable[[float], float]:
        return shuffled(clients=len(budgets), epsilon0=max(budgets)).epsilon
