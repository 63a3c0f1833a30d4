"""Gradient cosine: infers membership from the mean cosine between uploads and the candidate's gradient."""

from dataclasses import dataclass

import numpy as np

from ....fl.probe import Candidates
from ....fl.view import View
from ...attack import Knowledge
from ..alignment import RoundRows, align
from .round_attack import RoundAttack


@dataclass(frozen=True, kw_only=True)
class GradientCosine(RoundAttack):
    """An attack like the gradient dot product, but with equal weight for every round and every candidate; a zero
    gradient has cosine 0.
    """

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        return align(rows, knowledge, shown).cosines.numpy()

    def total(self, sums: np.ndarray, rounds: np.ndarray) -> np.ndarray:
        return np.asarray(sums / rounds[:, None], dtype=np.float64)
