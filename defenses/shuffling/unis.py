"""UniS shuffles each coordinate, noised by clip-Laplace at one budget for all clients (Liu et al. 2023, baseline)."""

from collections.abc import Callable
from dataclasses import dataclass

from ..accounting.pld import Profile
from ..accounting.shuffled import shuffled
from ..defense import Variant
from .budgeted import BudgetedReports
from .claims import AssuredCohort, among_equals
from .personal import OneBudget


@dataclass(frozen=True, kw_only=True)
class UniS(OneBudget):
    """A defense with a shuffler in which all clients have the same budget.

    Claims, replace-one: a client's whole report over all rounds, and one coordinate of one round. The adversary is the
    analyser behind the shuffler. Each coordinate is hidden among reports of its privacy blanket (Balle et al. 2019),
    and coordinates and rounds compose by privacy-loss distributions.

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
          which gives .0689. Here: the privacy blanket of clip-Laplace, which gives .0306.
        - Loose but valid: eps_uc 76.9 of Table 3, by advanced composition over 7850 coordinates. With one budget of 1
          for all clients it is 2.35 at delta 3.6e-5. Here: composition by privacy-loss distributions.
        - Not stated: a bound for classic Laplace noise at unequal budgets, which UniS runs (Baselines); footnote 1
          calls the printed eps_c "an approximation". Here: one budget for all, clip-Laplace; ``unis_unequal`` runs what
          the paper runs.
    """

    mechanism = "clip-Laplace on each coordinate"
    source = "Balle et al. 2019, Lemma 5.3; Zhu, Dong, Wang 2022, Theorem 10"
    published_source = "Liu et al. 2023, equation 2 and Lemma 2, as published"

    variant: Variant = "corrected"

    def _protection(self, budgets: tuple[float, ...]) -> BudgetedReports:
        return BudgetedReports(radius=self.radius, budgets=budgets)

    def _hidden(self, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> Profile:
        return among_equals(others=cohort.others, epsilon0=budgets[client])

    def _averaged(self, budgets: tuple[float, ...]) -> Callable[[float], float]:
        return shuffled(clients=len(budgets), epsilon0=budgets[0]).epsilon
