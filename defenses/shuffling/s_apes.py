"""S-APES is APES in which clients send only their largest noisy numbers, padded with dummies (Liu et al. 2023)."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from torch import Tensor

from ...audit.claim import Claim, Unit
from ...audit.observer import SHUFFLED, UPLOADS, Observer
from ...audit.wording import nearest
from ...fl.fields import Positive
from ...fl.plan import Plan
from ..accounting.counts import least_epsilon
from ..accounting.pld import many_epsilon
from ..accounting.shuffled import published_bound
from ..defense import Prepared, Share
from .budgeted import BudgetedReports, budgets_of
from .claims import (
    LargestPair,
    LocalPair,
    Terms,
    check_clients,
    check_coordinate_delta,
    deal,
    largest_scale,
    local_terms,
    published_total,
    representative_clients,
)
from .personal import DealtBudgets
from .top_reports import RandomReportsLaw, Selection, TopReportsLaw, sparse_rows


@dataclass(frozen=True, kw_only=True)
class SAPESProtection(BudgetedReports):
    """A protection in which a client sends only ``kept`` numbers of its clip-Laplace report, either the largest or
    random ones, and sends dummies in place of the others.

    Each coordinate is shuffled separately. The server calibrates as in APES, without regard to dummies, so its estimate
    is too small.
    """

    kept: int
    selection: str = Selection.LARGEST
    sums = "unweighted mean"

    def drawn(self, values: Tensor, budgets: Tensor, rng: np.random.Generator) -> Tensor:
        return sparse_rows(values, budgets, self.radius, self.kept, rng, selection=self.selection)

    def law(self, observer: Observer, plan: Plan, client: int) -> TopReportsLaw | None:
        """Return the distribution of one client's report as the client sends it; return None behind the shuffler, where
        the numbers of a report are separated from each other.
        """
        if observer.rank != UPLOADS.rank:
            return None
        (budget,) = budgets_of((client,), self.budgets).tolist()
        of = RandomReportsLaw if self.selection == Selection.RANDOM else TopReportsLaw
        return of(radius=self.radius, budget=budget, kept=self.kept)


@dataclass(frozen=True, kw_only=True)
class SAPES(DealtBudgets):
    """A defense in which every client has its own budget; clients add noise to a report, keep only some of its numbers,
    and send it to a shuffler.

    Claims, replace-one, of one client with the smallest, the median and the largest budget each: any two reports, over
    all coordinates (with random selection: those that are kept) and rounds. The adversary is the server, which observes
    individual updates; the claims hold against the analyser too. No amplification by the shuffler is proved: see the
    errata. ``LargestPair`` has the proof of what the choice of the largest numbers costs.

    Args:
        epsilon, delta: the total budget of the client with the largest local budget; all local budgets are scaled to
            it.
        coordinate_delta: delta of the claim about one coordinate, as published.
        share: of the coordinates that are kept, in (0, 1): the paper's b/d.
        selection: which noisy numbers of a report are kept: the "largest", or "random" ones, as the paper compares in
            Figure 3(b). The choice of random ones does not depend on the value, so only the kept numbers spend their
            budgets.
        budgets: one of Table 2's distributions; ``shuffling.claims.budgets.deal`` assigns them to clients.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.
        scale: of the noise, in units of 2 radius / budget. The paper's text has 1, its Algorithm 2 has d; the claims
            use the noise that is drawn.
        variant: "corrected", or "as_published": b budgets locally, 2b compositions behind the shuffler.

    Errata:
        - False: as local DP at delta 0 with noise of scale 2C/eps, one of three readings, eps_ul of Table 3: 78.5 to
          1570, b = 1570 budgets of d = 7850. Which b numbers are kept depends on all d noisy ones; where all are near 0
          the loss is d ln((e^(eps/2) + 1)/2), 98.7 and 2205. In two other readings the figures are loose but valid: at
          the table's delta 3.6e-5 for eps_uc, where 12.8 and 1485 suffice; and at the noise scale d 2C/eps that
          Algorithm 2 prints, where all d numbers spend one budget together, but then eps_c would not be "the same" as
          that of APES. Here: scale 2C/eps, and at most b eps + (d - b) ln((e^(eps/2) + 1)/2) at delta 0, below 158 and
          3335, or the composition of d numbers at delta if it is less.
        - Not stated: in the text read, which lacks Appendix A, a proof that a report costs 2b compositions behind the
          shuffler (Proposition 1), nor that it costs d. Clones hide one coordinate if swapping the numbers of two
          clients changes nothing else; here it changes what each of them keeps of its other coordinates. Whether the
          bound holds for all coordinates is open; one coordinate alone may be amplified. Here: the claim of the reports
          themselves, without a shuffler.
        - Not stated: legibly in the copy read, a scan, the value around which Algorithm 2 draws the report. The section
          "Post Sparsification" selects from the perturbed gradient. Here: noise around the client's value, of scale
          2C/eps by default (``scale``).
        - Not stated: how the server treats dummies; equation 1 is for APES. Here: equation 1 as if there were none,
          which at Uniform2 and b/d .2 makes its step .40 times as long; a learning rate divided by this undoes it.
    """

    coordinate_delta: float = 1e-8
    share: Share = 0.2
    selection: str = Selection.LARGEST
    scale: Positive = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_coordinate_delta(self.coordinate_delta)
        if self.selection not in tuple(Selection):
            raise ValueError(
                "selection, the rule by which numbers are sent, must be one of: "
                f"{nearest(str(self.selection), tuple(Selection))}; got {self.selection!r}"
            )

    @property
    def noise_scale(self) -> float:
        return self.scale

    def prepare(self, plan: Plan) -> Prepared:
        check_clients(plan.clients)
        published = self.variant == "as_published"
        factor, claims = self._published(plan) if published else self._corrected(plan)
        # A noise scale of s is the noise of a budget that is s times smaller.
        drawn = deal(self.budgets, plan.clients, factor / self.scale)
        protection = SAPESProtection(radius=self.radius, budgets=drawn, kept=self._kept(plan), selection=self.selection)
        return Prepared(protection=protection, claims=claims)

    @property
    def _selected(self) -> str:
        return "random ones" if self.selection == Selection.RANDOM else "the largest"

    def _spending(self, plan: Plan) -> int:
        """Numbers of a report that are composed: with the largest kept, all numbers that they were chosen from."""
        return self._kept(plan) if self.selection == Selection.RANDOM else plan.layout.dim

    def _pair(self, plan: Plan, budget: float) -> LocalPair:
        """The privacy profile of one of these numbers if the sender is known."""
        if self.selection == Selection.RANDOM:
            return LocalPair(budget)
        return LargestPair(budget, kept=self._kept(plan), among=plan.layout.dim)

    def _kept(self, plan: Plan) -> int:
        return max(1, round(self.share * plan.layout.dim))

    def _corrected(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        terms = replace(
            local_terms(plan, self.radius),
            mechanism=f"clip-Laplace on each coordinate, {self._selected} kept, dummy values added",
            spending=self._spending(plan),
        )
        largest = max(deal(self.budgets, plan.clients)) / self.scale

        def cost(factor: float) -> float:
            return terms.total(self._pair(plan, factor * largest), delta=self.delta)

        factor = self.budget_scale or largest_scale(cost, self.epsilon, largest=largest)
        budgets = deal(self.budgets, plan.clients, factor / self.scale)
        claims = terms.of_clients(partial(self._pair, plan), budgets, delta=self.delta, kept=self._kept(plan))
        return factor, claims

    def _published(self, plan: Plan) -> tuple[float, tuple[Claim, ...]]:
        kept, terms = self._kept(plan), self._terms(plan)
        spending = self._spending(plan) * plan.participations
        # The paper's claim ignores the scale of the noise; the local budgets depend on it.
        largest = max(deal(self.budgets, plan.clients)) / min(1.0, self.scale)

        def cost(factor: float) -> float:
            budgets = deal(self.budgets, plan.clients, factor)
            return published_total(
                published_bound(budgets).epsilon,
                coordinates=terms.releases,
                releases=2 * kept * plan.participations,
                largest=max(budgets),
                delta=self.delta,
            )

        factor = self.budget_scale or largest_scale(
            cost, self.epsilon, largest=largest, else_too_large=f" at scale {self.scale:g}"
        )
        budgets = deal(self.budgets, plan.clients, factor)
        one, most = published_bound(budgets).epsilon(self.coordinate_delta), representative_clients(budgets)[-1]
        # What is provable uses the noise that is really drawn.
        own = self._pair(plan, budgets[most] / self.scale)
        behind = terms.published(
            (Unit.CLIENT, cost(factor), self.delta, many_epsilon(own, releases=spending, delta=self.delta)),
            (Unit.COORDINATE, one, self.coordinate_delta, least_epsilon(own.delta, self.coordinate_delta)),
            parameters={"client": most, "kept": kept},
        )
        before = tuple(
            replace(terms, observer=UPLOADS, trust="nobody").stated(
                unit=Unit.REPORT,
                epsilon=kept * plan.participations * budgets[client],
                delta=0.0,
                accountant="sum of the kept coordinates",
                subjects=f"clients of budget {budgets[client]:.4g}",
                parameters={
                    "client": client,
                    "kept": kept,
                    "local_epsilon": budgets[client],
                    "provable_epsilon": spending * self._pair(plan, budgets[client] / self.scale).pure_epsilon,
                },
            )
            for client in representative_clients(budgets)
        )
        return factor, behind + before

    def _terms(self, plan: Plan) -> Terms:
        return Terms(
            plan=plan,
            observer=SHUFFLED,
            mechanism=f"clip-Laplace on each coordinate, {self._selected} kept, dummy values added, each coordinate "
            "shuffled",
            radius=self.radius,
            trust="the shuffler",
            source="Liu et al. 2023, Table 3, Theorem 4 and Proposition 1, as published",
        )
