"""LLG: label counts from shared gradients alone: signs first, then sizes (Wainakh et al. 2022)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from ...audit.evidence import LabelCounts
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round
from .lots import counts_of_round, read_lots


def picked_labels(sums: FloatArray, sizes: IntArray, impact: FloatArray, offset: FloatArray) -> IntArray:
    """Counts ``(n, classes)`` picked one label after the other from the row sums ``(n, classes)``.

    First each class with a negative sum, once (the lowest ones where they outnumber the lot); then, until the lot is
    full, the class whose sum minus ``offset (classes,)`` is lowest. Each pick takes ``impact (n,)``, what one label
    adds to its own class's sum and so a negative number, off the sum. Of equal sums the lower class goes first.
    """
    counts, left = np.zeros(sums.shape, dtype=np.int64), sums - offset
    for row, size in enumerate(sizes):
        order = np.argsort(sums[row], kind="stable")
        counts[row, [label for label in order if sums[row, label] < 0][:size]] = 1
        left[row] -= impact[row] * counts[row]
        for _ in range(size - counts[row].sum()):
            lowest = left[row].argmin()
            counts[row, lowest] += 1
            left[row, lowest] -= impact[row]
    return counts


@dataclass(frozen=True, kw_only=True)
class LLG(Attack):
    """Counts of each upload of ``round`` from the sums g of the rows of the last weight's gradient.

    The impact of one label is guessed from the upload itself: the sum of the negative g over the lot's size, times
    1 + 1/classes; the offsets are taken to be 0. Meant for models that are hardly trained, with features that are not
    negative. Any factor on the upload, such as a clip, cancels.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``, each row summing to the lot's public size. Raises ValueError as `read_lots`."""
        lots = read_lots(view, knowledge, self.round)
        sums, classes = lots.last.row_sums, knowledge.network.classes
        impact = np.minimum(sums, 0).sum(1) / lots.sizes * (1 + 1 / classes)
        counts = picked_labels(sums, lots.sizes, impact, np.zeros(classes))
        return counts_of_round(counts, view, self.round)
