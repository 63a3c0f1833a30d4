"""Each client adds Laplace noise to a few coordinates, under local DP (Dwork et al. 2006; Wang et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from ...randomisers.numbers.laplace import Laplace
from ...randomisers.randomiser import BoundedNumber
from ..defense import SampledDefense


@dataclass(frozen=True, kw_only=True)
class LDPLaplace(SampledDefense):
    """A local DP defense that adds Laplace noise of scale 2 * radius / epsilon to each sent coordinate, because two
    clipped values differ by at most 2 * radius.
    """

    mechanism: ClassVar[str] = "Laplace"
    source: ClassVar[str] = "Dwork, McSherry, Nissim, Smith 2006, Theorem 1; Wang et al. 2019, Algorithm 4"
    of: ClassVar[type[BoundedNumber]] = Laplace
