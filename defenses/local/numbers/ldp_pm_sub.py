"""Each client perturbs a few coordinates with PM-SUB, a wider Piecewise mechanism (local DP; Zhao et al. 2020)."""

from ...randomisers.numbers.pm_sub import PMSub
from ..defense import SampledDefense


class LDPPMSub(SampledDefense):
    """A local DP defense that applies the Piecewise mechanism with a nearly optimal width of its interval around each
    coordinate.
    """

    mechanism = "PM-SUB"
    source = f"{PMSub.source}; sampling: Wang et al. 2019, Algorithm 4"
    of = PMSub
