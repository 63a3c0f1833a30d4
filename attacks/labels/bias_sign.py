"""Attack that infers a batch's classes from negative bias gradients of the last layer (after Zhao et al. 2020)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from ..attack import Knowledge
from .label_attack import LabelAttack, LabelLots


def present_classes(scores: FloatArray, sizes: IntArray) -> IntArray:
    """Return label counts ``(n, classes)`` from ``scores (n, classes)``; a negative score means that the batch contains
    the class.

    Classes with negative scores get equal counts; the most negative ones get more where the lot's size is not divisible
    or too small. Where no score is negative, the class with the lowest score gets the whole lot.
    """
    order = np.argsort(np.argsort(scores, axis=1, kind="stable"), axis=1, kind="stable")
    # At least one class is in the lot, whatever noise does to the scores.
    named = np.maximum((scores < 0).sum(1), 1)[:, None]
    kept = np.minimum(named, sizes[:, None])
    share, rest = sizes[:, None] // kept, sizes[:, None] % kept
    return np.asarray(np.where(order < kept, share + (order < rest), 0), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class BiasSign(LabelAttack):
    """An attack that infers which classes are behind each upload of one round, but not how often: all classes found get
    equal counts.

    The bias gradient of class k is (mean softmax of k) - (share of k): negative where k is more frequent in the lot
    than the model predicts. The attack misses a class that is rarer; in lots larger than the number of classes it
    misses about half of the classes. It never reports an absent class, and is exact on one sample. Clipping changes
    nothing.
    """

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        return present_classes(lots.last.needed_bias("bias_sign"), lots.sizes)
