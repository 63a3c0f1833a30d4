"""Row sum: a class whose row of the last layer's weight gradient sums below zero is in the lot (extended iDLG)."""

from dataclasses import dataclass

import numpy as np

from ...audit.evidence import LabelCounts
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round
from .bias_sign import present_classes
from .lots import counts_of_round, read_lots


@dataclass(frozen=True, kw_only=True)
class RowSum(Attack):
    """Which classes are in each upload of ``round``, for layers with or without a bias.

    Each sample adds (softmax - one-hot) times the sum of its features: a sign rule where features are not negative
    (after ReLU or sigmoid), a heuristic after others. What Ma et al. 2023 compare with as "iDLG" on batches.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``, dealt equally among the classes named. Raises ValueError as `read_lots`."""
        lots = read_lots(view, knowledge, self.round)
        return counts_of_round(present_classes(lots.last.row_sums, lots.sizes), view, self.round)
