"""Attack that infers membership from inner products of uploads with the candidate's gradient, summed over rounds."""

from dataclasses import dataclass

import numpy as np

from ...fl.candidates import Candidates
from ...fl.recorder import View
from ..attack import Knowledge
from .candidates import RoundRows, align
from .round_attack import RoundAttack


@dataclass(frozen=True, kw_only=True)
class GradientDot(RoundAttack):
    """An attack whose score is the inner product of the uploaded gradient with the candidate's gradient, summed over
    rounds.

    The candidate's gradient is that at the round's model.

    A sum of gradients that includes the candidate's is larger along it by its squared length.
    """

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        return align(rows, knowledge, shown).dots.numpy()
