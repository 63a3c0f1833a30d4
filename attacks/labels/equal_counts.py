"""Equal counts: every class as often as every other, which a batch's multiset accuracy rewards without a look."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import LabelCounts
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round
from .lots import counts_of_round, public_sizes


@dataclass(frozen=True, kw_only=True)
class EqualCounts(Attack):
    """The lot's public size over the number of classes, for each upload of ``round``; fractions are kept."""

    null: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``."""
        sizes, classes = public_sizes(view, knowledge, self.round), knowledge.network.classes
        return counts_of_round(np.tile(sizes[:, None] / classes, (1, classes)), view, self.round)
