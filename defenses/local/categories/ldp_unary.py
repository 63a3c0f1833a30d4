"""Each client sends a few coordinates, rounded to a grid, by optimised unary encoding (local DP; Wang et al. 2017)."""

from ...randomisers.categories.unary import Unary
from .grid import GriddedDefense


class LDPUnary(GriddedDefense):
    """A local DP defense that sends each coordinate's grid level as one-hot bits and flips each at random: a one with
    probability 1/2, a zero with 1 / (1 + e^epsilon).
    """

    mechanism = "optimised unary encoding"
    source = f"{Unary.source}; sampling: Wang et al. 2019, Algorithm 4"
    of_levels = Unary
