"""Each client sends a few coordinates, rounded to a grid, by optimised local hashing (local DP; Wang et al. 2017)."""

from ...randomisers.categories.local_hashing import LocalHashing
from .grid import GriddedDefense, check_levels


class LDPLocalHashing(GriddedDefense):
    """A local DP defense in which each client applies its public hash function to a coordinate's grid level and reports
    the hash value by randomised response.

    The client decodes cell and function to one number before it sends it.

    Args:
        levels: of the grid, 3 to 12.
    """

    mechanism = "optimised local hashing"
    source = f"{LocalHashing.source}; sampling: Wang et al. 2019, Algorithm 4"
    of_levels = LocalHashing

    def __post_init__(self) -> None:
        super().__post_init__()
        check_levels(self.levels, least=3)
