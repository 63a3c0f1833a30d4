"""Null attack that gives every class the same count, without using the upload."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from .label_attack import NullLabelAttack


@dataclass(frozen=True, kw_only=True)
class EqualCounts(NullLabelAttack):
    """A null attack that gives every class the same count, the batch's public size over the number of classes.

    Counts may be fractions.

    Multiset accuracy rewards this guess, so an attack on balanced lots has to beat it.
    """

    def guesses(self, sizes: IntArray, classes: int, rng: np.random.Generator) -> FloatArray:
        return np.tile(sizes[:, None] / classes, (1, classes))
