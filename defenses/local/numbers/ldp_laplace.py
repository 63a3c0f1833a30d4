"""Each client adds Laplace noise to a few coordinates, under local DP (Dwork et al. 2006; Wang et al. 2019)."""

from ...randomisers.numbers.laplace import Laplace
from ..defense import SampledDefense


class LDPLaplace(SampledDefense):
    """A local DP defense that adds Laplace noise of scale 2 * radius / epsilon to each sent coordinate, because two
    clipped values differ by at most 2 * radius.
    """

    mechanism = "Laplace"
    source = "Dwork, McSherry, Nissim, Smith 2006, Theorem 1; Wang et al. 2019, Algorithm 4"
    of = Laplace
