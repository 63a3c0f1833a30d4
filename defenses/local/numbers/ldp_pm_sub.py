"""Each client perturbs a few coordinates with PM-SUB, a wider Piecewise mechanism (local DP; Zhao et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.numbers.pm_sub import PMSub
from ...randomisers.randomiser import BoundedNumber
from ..defense import SampledDefense


@dataclass(frozen=True, kw_only=True)
class LDPPMSub(SampledDefense):
    """A local DP defense that applies the Piecewise mechanism with a nearly optimal width of its interval around each
    coordinate.
    """

    mechanism: ClassVar[str] = "PM-SUB"
    source: ClassVar[str] = f"{PMSub.source}; sampling: Wang et al. 2019, Algorithm 4"
    of: ClassVar[type[BoundedNumber]] = PMSub
