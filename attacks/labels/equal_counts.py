"""Null attack that gives every class the same count, without using the upload."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import LabelCounts
from ...fl.recorder import View
from ..attack import Knowledge
from .label_attack import LabelAttack, counts_of_round, public_sizes


@dataclass(frozen=True, kw_only=True)
class EqualCounts(LabelAttack):
    """A null attack that gives every class the same count, the batch's public size over the number of classes.

    Counts may be fractions.

    Multiset accuracy rewards this guess, so an attack on balanced lots has to beat it.
    """

    null: ClassVar[bool] = True

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Return label counts ``(n, classes)``, one row per upload."""
        sizes, classes = public_sizes(view, knowledge, self.round), knowledge.network.classes
        return counts_of_round(np.tile(sizes[:, None] / classes, (1, classes)), view, self.round)
