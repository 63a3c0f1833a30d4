"""Each client sends a few coordinates, rounded to a grid, by optimised unary encoding (local DP; Wang et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.categories.unary import Unary
from ...randomisers.randomiser import FiniteDomain
from .grid import GriddedDefense


@dataclass(frozen=True, kw_only=True)
class LDPUnary(GriddedDefense):
    """A local DP defense that sends each coordinate's grid level as one-hot bits and flips each at random: a one with
    probability 1/2, a zero with 1 / (1 + e^epsilon).
    """

    mechanism: ClassVar[str] = "optimised unary encoding"
    source: ClassVar[str] = f"{Unary.source}; sampling: Wang et al. 2019, Algorithm 4"
    of_levels: ClassVar[type[FiniteDomain]] = Unary
