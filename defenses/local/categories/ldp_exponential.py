"""Each client sends a few coordinates by the exponential mechanism (local DP; McSherry and Talwar 2007)."""

import numpy as np

from ....audit.arrays import FloatArray
from ...randomisers.categories.exponential import Exponential
from .grid import Gridded, GriddedDefense


class _ByDistance(Gridded):
    """The utility of each candidate for a level: 1 less their distance, as a share of the whole range."""

    def values(self) -> FloatArray:
        return np.asarray(1 - np.abs(self.grid - self.grid[:, np.newaxis]) / 2)


class LDPExponential(GriddedDefense):
    """A local DP defense that sends each coordinate as a grid level chosen by the exponential mechanism: levels near
    the coordinate are more likely, and the server's estimate is unbiased.

    The mechanism runs at twice a number's epsilon, and its exact epsilon is the number's. The general theorem's factor
    2 pays for normalisers that move against the utility; on an even grid they are symmetric, Z(i) = Z(-i). With a the
    loss of one step, ln Z(j) - ln Z(i) <= a min(|j - i|, |j + i|), and is above 0 only for a j between i and -i, so
    that the whole ratio stays within a (|j - i| + |j + i|) = 2 a |i|, the loss between both ends.
    """

    mechanism = "exponential"
    source = f"{Exponential.source}; sampling: Wang et al. 2019, Algorithm 4"

    def number(self, epsilon: float) -> Gridded:
        # Twice the epsilon: on this grid the exact loss is half of what the general theorem allows.
        chosen = Exponential(epsilon=2 * epsilon, candidates=self.levels, sensitivity=1.0)
        return _ByDistance(randomiser=chosen, levels=self.levels)
