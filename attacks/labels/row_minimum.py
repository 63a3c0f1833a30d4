"""Row minimum: the classes whose rows of the last weight's gradient dip lowest (Yin et al. 2021, GradInversion)."""

from dataclasses import dataclass

import numpy as np

from ...audit.evidence import LabelCounts
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round
from .bias_sign import present_classes
from .lots import counts_of_round, read_lots


@dataclass(frozen=True, kw_only=True)
class RowMinimum(Attack):
    """The classes of each upload of ``round`` whose least entry over the features is lowest.

    The paper takes as many classes as the lot has samples, for labels that do not repeat. Here only those whose least
    entry is negative: where features are not negative that is right of every class that is in the lot and has a
    feature which few others share, while an absent class's row has no negative entry at all. Lots are dealt equally
    among the classes named, since the rule says nothing of repeats.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``. Raises ValueError as `read_lots`."""
        lots = read_lots(view, knowledge, self.round)
        return counts_of_round(present_classes(lots.last.weight.min(-1), lots.sizes), view, self.round)
