"""Attack that infers a batch's classes from negative row sums of the last layer's weight gradient (extended iDLG)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import IntArray
from ..attack import Knowledge
from .bias_sign import present_classes
from .label_attack import LabelAttack, LabelLots


@dataclass(frozen=True, kw_only=True)
class RowSum(LabelAttack):
    """An attack that infers which classes are behind each upload of one round, for last layers with or without a bias.

    Each sample adds (softmax - one-hot) times the sum of its features. The sign is exact where features are not
    negative (after ReLU or sigmoid) and a heuristic otherwise. Ma et al. 2023 compare with this as "iDLG" on batches.
    """

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        return present_classes(lots.last.row_sums, lots.sizes)
