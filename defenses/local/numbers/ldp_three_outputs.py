"""Each client sends each of a few coordinates as one of three numbers, under local DP (Zhao et al. 2020)."""

from ...randomisers.numbers.three_outputs import ThreeOutputs
from ..defense import SampledDefense


class LDPThreeOutputs(SampledDefense):
    """A local DP defense that sends each coordinate as -bound, 0 or bound; at an epsilon of at most ln 2 per number it
    never sends 0 and equals Duchi's mechanism.

    A 0 that is sent carries information, and the server can distinguish it from a coordinate that is not sent.
    """

    mechanism = "Three-Outputs"
    source = f"{ThreeOutputs.source}; sampling: Wang et al. 2019, Algorithm 4"
    of = ThreeOutputs
