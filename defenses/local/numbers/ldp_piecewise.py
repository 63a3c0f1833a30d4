"""Each client perturbs a few coordinates with the Piecewise mechanism, under local DP (Wang et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.numbers.piecewise import Piecewise
from ..defense import Numeric, SampledDefense


@dataclass(frozen=True, kw_only=True)
class LDPPiecewise(SampledDefense):
    """A local DP defense that replaces each sent coordinate by a random number, most likely from an interval around it;
    reports are unbiased and bounded.
    """

    mechanism: ClassVar[str] = "Piecewise"
    source: ClassVar[str] = "Wang et al. 2019, Algorithms 2 and 4"

    def number(self, epsilon: float) -> Numeric:
        piecewise = Piecewise(epsilon=epsilon, radius=1.0)
        return Numeric(randomiser=piecewise, reach=piecewise.bound)
