"""Local DP: a few sampled coordinates, each a random set of grid levels by subset selection (Ye and Barg 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.categories.subset_selection import SubsetSelection
from .grid import Gridded
from .gridded import GriddedDefense


@dataclass(frozen=True, kw_only=True)
class LDPSubsetSelection(GriddedDefense):
    """A set of levels that contains the true one more often; at a large budget a set of one level, which is randomised
    response.
    """

    mechanism: ClassVar[str] = "subset selection"
    source: ClassVar[str] = f"{SubsetSelection.source}; sampling: Wang et al. 2019, Algorithm 4"

    def number(self, epsilon: float) -> Gridded:
        return Gridded(randomiser=SubsetSelection(epsilon=epsilon, domain=self.levels), levels=self.levels)
