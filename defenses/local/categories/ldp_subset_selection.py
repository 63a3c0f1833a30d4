"""Local DP: a few sampled coordinates of every report, each a random set of grid levels (Ye and Barg 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.categories.subset_selection import SubsetSelection
from .grid import Gridded
from .gridded import GriddedDefense


@dataclass(frozen=True, kw_only=True)
class LDPSubsetSelection(GriddedDefense):
    """A set of levels that more often holds the true one; of one level, and randomised response, at a large budget."""

    mechanism: ClassVar[str] = "subset selection"
    source: ClassVar[str] = f"{SubsetSelection.source}; sampling: Wang et al. 2019, Algorithm 4"

    def number(self, epsilon: float) -> Gridded:
        return Gridded(randomiser=SubsetSelection(epsilon=epsilon, domain=self.levels), levels=self.levels)
