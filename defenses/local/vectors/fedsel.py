"""FedSel privately selects one large coordinate and sends its value by Piecewise (local DP; Liu et al. 2020)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....audit.arrays import BoolArray, FloatArray
from ....fl.plan import Plan
from ...accounting.spending import pure_spending
from ...defense import Prepared, Share
from ...randomisers.vectors.fedsel import RULES, FedSel
from ..defense import LocalDefense, LocalProtection, sendable, unrounded
from .vector import VectorLaw


@dataclass(frozen=True, kw_only=True)
class FedSelLaw(VectorLaw):
    """A distribution of a report that is zero except at the selected coordinate, which holds its randomised value.

    Args:
        epsilon: of one round's report.
    """

    epsilon: float
    top_share: float
    share: float
    rule: str

    def randomiser(self, dim: int) -> FedSel:
        return FedSel(
            epsilon=self.epsilon,
            dimension=dim,
            radius=1.0,
            top=top_count(self.top_share, dim),
            share=self.share,
            rule=self.rule,
        )

    def values(self, rows: FloatArray) -> FloatArray:
        return np.clip(rows, -self.radius, self.radius) / self.radius

    def written(self, reports: NDArray[Any], dim: int) -> NDArray[np.float32]:
        rows = np.zeros((len(reports), dim), dtype=np.float32)
        rows[np.arange(len(rows)), reports[:, 0].astype(np.int64)] = sendable(self.radius * reports[:, 1])
        return rows

    def read(self, rows: NDArray[np.float32]) -> tuple[NDArray[Any], BoolArray]:
        # A number that happens to be 0 is sent as 1.2e-38, so the chosen coordinate is always visible.
        chosen = np.argmax(rows != 0, axis=1)
        found = unrounded(self.randomiser(rows.shape[1]).piecewise, rows[np.arange(len(rows)), chosen], self.radius)
        return np.stack([chosen.astype(np.float64), found], axis=1), (rows != 0).sum(axis=1) == 1


@dataclass(frozen=True, kw_only=True)
class LDPFedSel(LocalDefense):
    """A local DP defense that reports one coordinate and its randomised value; the choice depends on the data, so it
    spends a part of the round's budget, and the value spends the rest.

    The claim is of the whole row. **Biased**: what is sent is not divided by the probability of the choice, which is
    private. The paper's clients also accumulate what they did not send and add it to the next update; here they do not.

    Args:
        epsilon, delta: budget of all rounds together.
        radius: L-infinity bound of an update's coordinate.
        top_share: share of the coordinates that count as large, in (0, 1); used by "sampling" alone.
        share: of the budget for the choice, in (0, 1).
        rule: "sampling" (perturbed sampling) or "ranking" (the exponential mechanism on ranks).
    """

    top_share: Share = 0.1
    share: Share = 0.5
    rule: str = "sampling"
    mechanism = "FedSel"
    source = FedSel.source

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule not in RULES:
            raise ValueError(f"rule, which selects a coordinate, must be one of {', '.join(RULES)}, got {self.rule!r}")

    def prepare(self, plan: Plan) -> Prepared:
        release = FedSelLaw(
            epsilon=self.each_of(plan.participations),
            radius=self.radius,
            top_share=self.top_share,
            share=self.share,
            rule=self.rule,
        )
        choice = release.randomiser(plan.layout.dim)
        claim = self.claim(plan, {"top": choice.top, "share": self.share, "rule": self.rule})
        spending = pure_spending(claim, each=release.epsilon, releases=1, participations=plan.cohort.participations)
        return Prepared(protection=LocalProtection(release=release), claims=(claim,), spending=spending)


def top_count(share: float, dim: int) -> int:
    """Return how many of ``dim`` coordinates FedSel treats as large: at least one, and never all."""
    return max(1, min(dim - 1, round(share * dim)))
