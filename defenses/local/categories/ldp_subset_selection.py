"""Each client sends a few sampled coordinates, rounded to a grid, by subset selection (local DP; Ye and Barg 2018)."""

from ...randomisers.categories.subset_selection import SubsetSelection
from .grid import GriddedDefense


class LDPSubsetSelection(GriddedDefense):
    """A local DP defense that reports a random set of grid levels, which contains the true level more often than any
    other; at a large budget the set has one level (randomised response).
    """

    mechanism = "subset selection"
    source = f"{SubsetSelection.source}; sampling: Wang et al. 2019, Algorithm 4"
    of_levels = SubsetSelection
