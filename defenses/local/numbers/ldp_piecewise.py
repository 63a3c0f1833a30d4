"""Each client perturbs a few coordinates with the Piecewise mechanism, under local DP (Wang et al. 2019)."""

from ...randomisers.numbers.piecewise import Piecewise
from ..defense import SampledDefense


class LDPPiecewise(SampledDefense):
    """A local DP defense that replaces each sent coordinate by a random number, most likely from an interval around it;
    reports are unbiased and bounded.
    """

    mechanism = "Piecewise"
    source = "Wang et al. 2019, Algorithms 2 and 4"
    of = Piecewise
