"""Each client sends a few coordinates, rounded to a grid, by generalised randomised response (Kairouz et al. 2016)."""

from ...randomisers.categories.grr import GRR
from .grid import GriddedDefense


class LDPGRR(GriddedDefense):
    """A local DP defense that sends each coordinate's grid level by generalised randomised response; with two levels
    this is Duchi's mechanism.
    """

    mechanism = "generalised randomised response"
    source = f"{GRR.source}; sampling: Wang et al. 2019, Algorithm 4"
    of_levels = GRR
