"""Attack that infers membership from the mean cosine between uploads and the candidate's gradient."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.candidates import Candidates
from ...fl.recorder import View
from ..attack import Knowledge
from .candidates import RoundRows, align
from .round_attack import RoundAttack


@dataclass(frozen=True, kw_only=True)
class GradientCosine(RoundAttack):
    """An attack whose score is the mean cosine between the candidate's gradient and the uploads; a zero gradient has
    cosine 0.

    Unlike the gradient dot product, it gives every round and every candidate equal weight.
    """

    averaged: ClassVar[bool] = True

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        return align(rows, knowledge, shown).cosines.numpy()
