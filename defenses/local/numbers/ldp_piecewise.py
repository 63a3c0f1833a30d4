"""Local DP: a few sampled coordinates of every report by the Piecewise mechanism (Wang et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.numbers.piecewise import Piecewise
from ..defense import SampledDefense
from ..number import Numeric


@dataclass(frozen=True, kw_only=True)
class LDPPiecewise(SampledDefense):
    """Each sent coordinate is a number from an interval around it, or from outside of it, unbiased and bounded."""

    mechanism: ClassVar[str] = "Piecewise"
    source: ClassVar[str] = "Wang et al. 2019, Algorithms 2 and 4"

    def number(self, epsilon: float) -> Numeric:
        piecewise = Piecewise(epsilon=epsilon, radius=1.0)
        return Numeric(randomiser=piecewise, reach=piecewise.bound)
