"""Add Laplace noise to one number (Laplace mechanism: Dwork, McSherry, Nissim, Smith 2006, Example 1)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..randomiser import BoundedNumber, WeightedReports, numbers, quadrature

# Scales beyond the range at which a quadrature is cut: 4e-18 of the mass lies further out.
_TAIL = (0.5, 1, 2, 4, 7, 10, 15, 20, 30, 40)


class Laplace(BoundedNumber):
    """An unbiased randomiser that reports value + Lap(2 * radius / epsilon) for a value in [-radius, radius].

    The scale is sensitivity over epsilon, where the sensitivity is that of **any** two values, 2 radius. The survey
    of Fu et al. 2024 has epsilon / Delta in section 3.4.2, a slip (2.3.2 has Delta / epsilon), and defines Delta for
    inputs at distance 1, where local DP asks for any two (its Definition 2.4). In floating point the low bits of a
    report reveal more than its density (Mironov 2012): the claim is that of real numbers.
    """

    source = "Dwork, McSherry, Nissim, Smith 2006, Theorem 1"

    @property
    def scale(self) -> float:
        """Return the scale of the noise, in units of the value."""
        return 2 * self.radius / self.epsilon

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        centres = numbers(values, self.radius)
        return np.asarray(centres + rng.laplace(scale=self.scale, size=centres.shape))

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        distance = np.abs(np.asarray(reports, dtype=np.float64) - numbers(value, self.radius))
        return np.asarray(-distance / self.scale - math.log(2 * self.scale))

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        # Breaks far out and at the kinks: the quadrature is exact between them.
        tail = [self.radius + self.scale * far for far in _TAIL]
        return quadrature([*tail, *(-edge for edge in tail), *np.ravel([*values, -self.radius, self.radius]), *cuts])

    def inputs(self) -> FloatArray:
        return np.linspace(-self.radius, self.radius, 9)
