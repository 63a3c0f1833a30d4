"""Each client sends each of a few coordinates as one bit by Duchi's mechanism (local DP; Duchi et al. 2018)."""

from ...randomisers.numbers.duchi import Duchi
from ..defense import SampledDefense


class LDPDuchi(SampledDefense):
    """A local DP defense that sends each coordinate as one of two numbers, without bias; at a small budget no other
    mechanism for single coordinates has a smaller worst-case variance.
    """

    mechanism = "Duchi"
    source = "Duchi, Jordan, Wainwright 2018; Wang et al. 2019, Algorithm 4"
    of = Duchi
