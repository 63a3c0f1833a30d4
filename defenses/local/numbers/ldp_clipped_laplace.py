"""Local DP: a few sampled coordinates of every report by clip-Laplace, as APES adds it (Liu et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.numbers.clipped_laplace import ClippedLaplace
from ..defense import SampledDefense
from ..number import Numeric


@dataclass(frozen=True, kw_only=True)
class LDPClippedLaplace(SampledDefense):
    """Laplace noise conditioned on a report in [-radius, radius]; no shuffler here, and no amplification claimed.

    **Biased**: a report's mean is drawn towards zero, at a number's epsilon .4 to about .07 of the radius for a
    coordinate at the radius. No function of one report undoes it for all coordinates, and none is tried.
    """

    mechanism: ClassVar[str] = "clip-Laplace"
    source: ClassVar[str] = f"{ClippedLaplace.source}; sampling: Wang et al. 2019, Algorithm 4"

    def number(self, epsilon: float) -> Numeric:
        clipped = ClippedLaplace(epsilon=epsilon, radius=1.0)
        return Numeric(randomiser=clipped, reach=clipped.end)
