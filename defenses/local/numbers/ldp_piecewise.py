"""Each client perturbs a few coordinates with the Piecewise mechanism, under local DP (Wang et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.numbers.piecewise import Piecewise
from ...randomisers.randomiser import BoundedNumber
from ..defense import SampledDefense


@dataclass(frozen=True, kw_only=True)
class LDPPiecewise(SampledDefense):
    """A local DP defense that replaces each sent coordinate by a random number, most likely from an interval around it;
    reports are unbiased and bounded.
    """

    mechanism: ClassVar[str] = "Piecewise"
    source: ClassVar[str] = "Wang et al. 2019, Algorithms 2 and 4"
    of: ClassVar[type[BoundedNumber]] = Piecewise
