"""Replace a number by +bound or -bound (Duchi's mechanism: Duchi, Jordan, Wainwright 2018; Fu et al. 2024, eq. 13)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..randomiser import BoundedNumber, Flips, WeightedReports, coin, finite, numbers


class Duchi(BoundedNumber):
    """An unbiased randomiser of a value in [-radius, radius] that reports +bound or -bound, with bound = radius *
    (e^epsilon + 1) / (e^epsilon - 1).

    The value is rounded to an end of its range, without bias, and the end is flipped with probability 1 / (1 +
    e^epsilon); the flip is drawn in integers.
    """

    source = "Duchi, Jordan, Wainwright 2018; Wang et al. 2019, Algorithm 1"
    atomic = True

    @property
    def bound(self) -> float:
        """Return the absolute value of a report."""
        return self.radius / math.tanh(self.epsilon / 2)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        true = numbers(values, self.radius)
        # Rounding first makes the randomised part a single bit, which can be drawn exactly.
        up = coin((1 + true.ravel() / self.radius) / 2, true.size, rng).astype(np.int8)
        kept = Flips(of_one=self.epsilon, of_zero=self.epsilon).sample(up, rng)
        return np.where(kept == 1, self.bound, -self.bound).reshape(true.shape)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        seen, true = np.asarray(reports, dtype=np.float64), numbers(value, self.radius)
        chance = (1 + np.sign(seen) * true / self.bound) / 2
        # A tolerance: the bound may have been recomputed or sent in another precision.
        return np.where(np.isclose(np.abs(seen), self.bound, rtol=1e-12, atol=0), np.log(chance), -np.inf)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        return finite(np.array([-self.bound, self.bound]))
