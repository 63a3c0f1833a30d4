"""Each client sends a few sampled coordinates, rounded to a grid, by subset selection (local DP; Ye and Barg 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.categories.subset_selection import SubsetSelection
from ...randomisers.randomiser import FiniteDomain
from .grid import GriddedDefense


@dataclass(frozen=True, kw_only=True)
class LDPSubsetSelection(GriddedDefense):
    """A local DP defense that reports a random set of grid levels, which contains the true level more often than any
    other; at a large budget the set has one level (randomised response).
    """

    mechanism: ClassVar[str] = "subset selection"
    source: ClassVar[str] = f"{SubsetSelection.source}; sampling: Wang et al. 2019, Algorithm 4"
    of_levels: ClassVar[type[FiniteDomain]] = SubsetSelection
