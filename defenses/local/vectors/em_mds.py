"""EM-MDS privately selects several coordinates and sends one random sign for all (local DP; Jiang et al. 2022)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....audit.arrays import BoolArray, FloatArray
from ....fl.plan import Plan
from ...accounting.spending import pure_spending
from ...defense import Prepared, Share
from ...randomisers.randomiser import check_given_count
from ...randomisers.vectors.em_mds import EMMDS
from ..defense import LocalDefense, LocalProtection
from .fedsel import top_count
from .vector import VectorLaw


@dataclass(frozen=True, kw_only=True)
class EMMDSLaw(VectorLaw):
    """A distribution of a report that is zero except at ``chosen`` coordinates, which are all +radius or all -radius.

    Only the order of a row's entries matters: a contribution is the row scaled to a largest entry of one radius.

    Args:
        epsilon: of one round's report.
    """

    epsilon: float
    top_share: float
    chosen: int

    def randomiser(self, dim: int) -> EMMDS:
        top = top_count(self.top_share, dim)
        return EMMDS(epsilon=self.epsilon, dimension=dim, top=top, chosen=min(self.chosen, dim - 1))

    def contribution(self, rows: Tensor) -> Tensor:
        numbers = torch.nan_to_num(rows, nan=0.0)
        # Only the order of the entries matters, so the scale of a row is removed.
        largest = numbers.abs().amax(-1, keepdim=True)
        return numbers / largest.clamp_min(torch.finfo(rows.dtype).tiny) * self.radius

    def values(self, rows: FloatArray) -> FloatArray:
        return rows

    def written(self, reports: NDArray[Any], dim: int) -> NDArray[np.float32]:
        return reports * np.float32(self.radius)

    def read(self, rows: NDArray[np.float32]) -> tuple[NDArray[Any], BoolArray]:
        signs = np.sign(rows).astype(np.int8)
        count = min(self.chosen, rows.shape[1] - 1)
        whole = np.all((rows == 0) | (np.abs(rows) == np.float32(self.radius)), axis=1)
        return signs, whole & (np.abs(signs.sum(axis=1, dtype=np.int64)) == count) & ((signs != 0).sum(axis=1) == count)


@dataclass(frozen=True, kw_only=True)
class LDPEMMDS(LocalDefense):
    """A local DP defense whose report names ``chosen`` coordinates and one random sign. A set of coordinates is more
    likely if it contains many of the largest coordinates in the direction of the sign.

    No number is sent, and all of the round's budget goes to the set. Biased, as FedSel is.

    Args:
        epsilon, delta: budget of all rounds together.
        radius: what a named coordinate adds to the report, which is the server's step.
        top_share: share of the coordinates that count as large, in (0, 1).
        chosen: coordinates in a report.
    """

    top_share: Share = 0.1
    chosen: int = 10
    mechanism = "EM-MDS"
    source = EMMDS.source

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("chosen", self.chosen, least=1)

    def prepare(self, plan: Plan) -> Prepared:
        dim = plan.layout.dim
        if self.chosen >= dim:
            raise ValueError(
                f"chosen, the number of coordinates that are sent, must be below {dim}, the number of "
                f"coordinates of an update, got {self.chosen}"
            )
        release = EMMDSLaw(
            epsilon=self.each_of(plan.participations), radius=self.radius, top_share=self.top_share, chosen=self.chosen
        )
        choice = release.randomiser(dim)
        claim = self.claim(plan, {"top": choice.top, "chosen": self.chosen, "least": choice.least})
        spending = pure_spending(claim, each=release.epsilon, releases=1, participations=plan.cohort.participations)
        return Prepared(protection=LocalProtection(release=release), claims=(claim,), spending=spending)
