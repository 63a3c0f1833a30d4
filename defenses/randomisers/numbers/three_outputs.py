"""Replace a number by -bound, 0 or bound (Three-Outputs mechanism: Zhao et al. 2020)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..randomiser import BoundedNumber, WeightedReports, coin, finite, numbers


class ThreeOutputs(BoundedNumber):
    """An unbiased randomiser that reports 0 with probability a * (1 - (1 - e^-epsilon) * |value| / radius), otherwise
    -bound or +bound, such that the mean is the value.

    bound = radius e^epsilon (e^epsilon + 1) / ((e^epsilon - 1)(e^epsilon - a)): the ends have the ratio e^epsilon at
    +-bound, the middle and an end have it at 0 (where a > 0). a = P[0 | 0] in [0, e^epsilon / (e^epsilon + 2)] is the
    one of least worst-case variance; it is 0, Duchi's mechanism, for epsilon up to ln 2, and the largest from ln 5.53
    on. The draws are those of the laws at -radius, 0 and radius, mixed, so that rounding a private value costs nothing;
    probabilities are rounded to 2^-53.
    """

    source = "Zhao et al. 2020 (Local Differential Privacy based Federated Learning for IoT)"
    atomic = True

    @property
    def nothing(self) -> float:
        """Return the probability of reporting 0 for the value 0 (a in the paper)."""
        e, most = math.exp(min(self.epsilon, 2.0)), 1 / (1 + 2 * math.exp(-self.epsilon))
        if self.epsilon <= math.log(2):
            return 0.0
        if self.epsilon >= 2:
            return most
        # The root of a cubic, at which the derivative of the worst-case variance by a is zero.
        first = e**4 + 14 * e**3 + 50 * e**2 - 2 * e + 25
        second = -2 * e**6 - 42 * e**5 - 270 * e**4 - 404 * e**3 - 918 * e**2 + 30 * e - 250
        angle = math.pi / 3 + math.acos(-second / (2 * first**1.5)) / 3
        return min(most, (e**2 + 4 * e + 5 - 2 * math.sqrt(first) * math.cos(angle)) / 6)

    @property
    def bound(self) -> float:
        """Return the absolute value of a report that is not 0."""
        return self.radius / (math.tanh(self.epsilon / 2) * (1 - self.nothing * math.exp(-self.epsilon)))

    def _chances(self, value: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Probabilities of 0 and of +bound."""
        true = numbers(value, self.radius)
        zero = self.nothing * (1 + math.expm1(-self.epsilon) * np.abs(true) / self.radius)
        return np.asarray(zero), np.asarray((1 - zero + true / self.bound) / 2)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        true = numbers(values, self.radius)
        flat = true.ravel()
        # Rounding to -radius, 0 or radius first is unbiased, because the law is linear between them.
        end = coin(np.abs(flat) / self.radius, flat.size, rng) * np.sign(flat) * self.radius
        zero, up = self._chances(end)
        size = np.where(coin(zero, flat.size, rng), 0.0, self.bound)
        sign = np.where(coin(up / (1 - zero), flat.size, rng), 1.0, -1.0)
        return (size * sign).reshape(true.shape)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        seen = np.asarray(reports, dtype=np.float64)
        zero, up = self._chances(value)
        # The sign of a report decides, because rounding may change its size.
        chance = np.select([seen == 0, seen > 0], [zero, up], 1 - zero - up)
        known = (seen == 0) | np.isclose(np.abs(seen), self.bound, rtol=1e-12, atol=0)
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(chance), -np.inf)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        return finite(np.array([-self.bound, 0.0, self.bound]))

    def inputs(self) -> FloatArray:
        return np.array([-self.radius, 0.0, self.radius])
