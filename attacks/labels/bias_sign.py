"""Bias sign: a class whose last-layer bias gradient is negative is in the lot (after Zhao et al. 2020, iDLG)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from ...audit.evidence import LabelCounts
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round
from .lots import counts_of_round, read_lots


def present_classes(scores: FloatArray, sizes: IntArray) -> IntArray:
    """Counts ``(n, classes)`` from ``scores (n, classes)``, negative where the class is in the lot.

    Equal counts for the negative ones, the most negative first where they do not divide the lot or outnumber it, and
    the lowest score's class alone where none is negative.
    """
    order = np.argsort(np.argsort(scores, axis=1, kind="stable"), axis=1, kind="stable")
    named = np.maximum((scores < 0).sum(1), 1)[:, None]
    kept = np.minimum(named, sizes[:, None])
    share, rest = sizes[:, None] // kept, sizes[:, None] % kept
    return np.asarray(np.where(order < kept, share + (order < rest), 0), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class BiasSign(Attack):
    """Which classes are in each upload of ``round``; of how often it knows nothing and deals the lot equally.

    The bias gradient of class k is (mean softmax of k) - (share of k): negative where k is in the lot oftener than the
    model expects. A class that is there is missed when it is rarer than that, which in lots larger than the number of
    classes about half of them are; a class that is absent is never named. Exact on one sample. Clipping does not move
    it.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``. Raises ValueError as `read_lots`, or where the last layer has no bias."""
        lots = read_lots(view, knowledge, self.round)
        counts = present_classes(lots.last.needed_bias("bias_sign"), lots.sizes)
        return counts_of_round(counts, view, self.round)
