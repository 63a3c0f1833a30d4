"""Replace a number by a random one, most likely from an interval around it (Piecewise mechanism: Wang et al. 2019)."""

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..randomiser import BoundedNumber, WeightedReports, numbers, quadrature


class Centre(NamedTuple):
    """An interval around a value in which the report's density is e^epsilon times as large as outside."""

    low: FloatArray
    high: FloatArray


class Piecewise(BoundedNumber):
    """An unbiased randomiser with reports in [-bound, bound]; the density is e^epsilon times as large within an
    interval around the value as outside (Wang et al. 2019, Algorithm 2).

    With t = e^(epsilon ``power``) and s = (e^epsilon + t) / (t (e^epsilon - 1)), in units of the radius: low = s (t
    value - 1), high = s (t value + 1), bound = s (t + 1) (Zhao et al. 2020, for any t). Here t = e^(epsilon / 2): bound
    = (e^(epsilon/2) + 1) / (e^(epsilon/2) - 1), and the density is the survey's equation 14, right as a density on
    [-bound, bound]. The reports are floats: the claim is that of real numbers.
    """

    source = "Wang et al. 2019, Algorithm 2"
    power: ClassVar[float] = 0.5

    @property
    def _t(self) -> float:
        return math.exp(self.epsilon * self.power)

    @property
    def _step(self) -> float:
        """Half the width of the interval."""
        return self.radius * (1 + self._t * math.exp(-self.epsilon)) / (self._t * -math.expm1(-self.epsilon))

    @property
    def bound(self) -> float:
        """Return the largest possible report."""
        return self._step * (self._t + 1)

    @property
    def largest(self) -> float:
        return self.bound

    @property
    def truth(self) -> float:
        """Return the probability that a report lies in the interval around the value."""
        return 1 / (1 + self._t * math.exp(-self.epsilon))

    def centre(self, value: ArrayLike) -> Centre:
        """Return the lower and upper ends of the interval around each ``value``, two arrays of the same shape
        (...,).
        """
        middle = self._t * self._step * numbers(value, self.radius) / self.radius
        # The ends are clipped, because rounding may push them just beyond the bound.
        high = np.minimum(middle + self._step, self.bound)
        return Centre(np.maximum(middle - self._step, -self.bound), high)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        low, high = self.centre(values)
        share = rng.random(low.shape)
        inside = rng.random(low.shape) < self.truth
        # The outside is drawn as one interval without the centre and then shifted around it.
        outer = -self.bound + share * (2 * self.bound - (high - low))
        outer = np.where(outer < low, outer, outer + (high - low))
        return np.where(inside, low + share * (high - low), np.minimum(outer, self.bound))

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        seen, (low, high) = np.asarray(reports, dtype=np.float64), self.centre(value)
        # The interval has width 2 steps, so this is the logarithm of its density.
        dense = math.log(self.truth / (2 * self._step))
        inside = np.where((low <= seen) & (seen <= high), dense, dense - self.epsilon)
        return np.where(np.abs(seen) <= self.bound, inside, -np.inf)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        ends = np.ravel([self.centre(value) for value in values])
        within = [float(cut) for cut in cuts if abs(cut) < self.bound]
        return quadrature([-self.bound, self.bound, *ends, *within])
