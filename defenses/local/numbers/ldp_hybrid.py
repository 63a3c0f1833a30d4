"""Each client sends sampled coordinates by the Piecewise or Duchi's mechanism, drawn at random (Wang et al. 2019)."""

from ...randomisers.numbers.hybrid import Hybrid
from ..defense import SampledDefense


class LDPHybrid(SampledDefense):
    """A local DP defense that applies the Piecewise mechanism with probability 1 - e^(-epsilon / 2), otherwise Duchi's;
    at an epsilon below .61 per number it always applies Duchi's.
    """

    mechanism = "Hybrid"
    source = "Wang et al. 2019, HM and Algorithm 4"
    of = Hybrid
