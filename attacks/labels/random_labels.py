"""Null attack that guesses every label uniformly, without using the upload."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from .label_attack import NullLabelAttack


@dataclass(frozen=True, kw_only=True)
class RandomLabels(NullLabelAttack):
    """A null attack that draws a uniform label for each sample behind each client's upload of one round."""

    def guesses(self, sizes: IntArray, classes: int, rng: np.random.Generator) -> FloatArray:
        labels = rng.integers(classes, size=sizes.sum())
        counts = np.zeros((len(sizes), classes))
        np.add.at(counts, (np.repeat(np.arange(len(sizes)), sizes), labels), 1)
        return counts
