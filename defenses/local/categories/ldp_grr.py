"""Each client sends a few coordinates, rounded to a grid, by generalised randomised response (Kairouz et al. 2016)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.categories.grr import GRR
from ...randomisers.randomiser import FiniteDomain
from .grid import GriddedDefense


@dataclass(frozen=True, kw_only=True)
class LDPGRR(GriddedDefense):
    """A local DP defense that sends each coordinate's grid level by generalised randomised response; with two levels
    this is Duchi's mechanism.
    """

    mechanism: ClassVar[str] = "generalised randomised response"
    source: ClassVar[str] = f"{GRR.source}; sampling: Wang et al. 2019, Algorithm 4"
    of_levels: ClassVar[type[FiniteDomain]] = GRR
