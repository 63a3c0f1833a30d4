"""Attack that infers label counts from row sums of the last layer's weight gradient (LLG, Wainakh et al. 2022)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from ..attack import Knowledge
from .label_attack import LabelAttack, LabelLots


def picked_labels(sums: FloatArray, sizes: IntArray, impact: FloatArray, offset: FloatArray) -> IntArray:
    """Infer each batch's labels one at a time from the gradient's sums over features, ``(n, classes)``, and return
    label counts.

    First each class with a negative sum once (the lowest ones if they outnumber the lot). Then, until the lot is full,
    the class whose sum minus ``offset (classes,)`` is lowest. Each label found subtracts ``impact (n,)`` from the sum:
    the (negative) amount that one label adds to its own class's sum. Ties go to the lower class.
    """
    counts, left = np.zeros(sums.shape, dtype=np.int64), sums - offset
    for row, size in enumerate(sizes):
        order = np.argsort(sums[row], kind="stable")
        counts[row, [label for label in order if sums[row, label] < 0][:size]] = 1
        left[row] -= impact[row] * counts[row]
        # Greedy: each label found changes which class is lowest next.
        for _ in range(size - counts[row].sum()):
            lowest = left[row].argmin()
            counts[row, lowest] += 1
            left[row, lowest] -= impact[row]
    return counts


@dataclass(frozen=True, kw_only=True)
class LLG(LabelAttack):
    """An attack that infers the label counts of each upload of one round from g, the row sums of the last layer's
    weight gradient.

    The impact of one label is estimated from the upload itself: the sum of the negative g over the lot's size, times
    1 + 1/classes; the offsets are 0. Meant for barely trained models with features that are not negative. Any factor on
    the upload, such as from clipping, cancels.
    """

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        sums, classes = lots.last.row_sums, knowledge.network.classes
        # Only negative sums belong to classes in the lot; the others would cancel part of them.
        impact = np.minimum(sums, 0).sum(1) / lots.sizes * (1 + 1 / classes)
        return picked_labels(sums, lots.sizes, impact, np.zeros(classes))
