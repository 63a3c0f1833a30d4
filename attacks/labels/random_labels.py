"""Null attack that guesses every label uniformly, without using the upload."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import LabelCounts
from ...fl.recorder import View
from ..attack import Knowledge
from .label_attack import LabelAttack, counts_of_round, public_sizes


@dataclass(frozen=True, kw_only=True)
class RandomLabels(LabelAttack):
    """A null attack that draws a uniform label for each sample behind each client's upload of one round."""

    null: ClassVar[bool] = True

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Return label counts ``(n, classes)``, one row per upload."""
        sizes, classes = public_sizes(view, knowledge, self.round), knowledge.network.classes
        labels = rng.integers(classes, size=sizes.sum())
        counts = np.zeros((len(sizes), classes))
        np.add.at(counts, (np.repeat(np.arange(len(sizes)), sizes), labels), 1)
        return counts_of_round(counts, view, self.round)
