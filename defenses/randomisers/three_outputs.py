"""Three-Outputs: one number to -bound, 0 or bound (Zhao et al. 2020, section IV)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from ...audit.binomial import FloatArray
from .coins import coin
from .outputs import Outputs, finite
from .randomiser import NOT_GIVEN, Randomiser, check_radius, numbers


@dataclass(frozen=True, kw_only=True)
class ThreeOutputs(Randomiser):
    """P[0 | value] = a (1 - (1 - e^-epsilon) |value| / radius), P[+-bound] as the unbiased mean then asks.

    bound = radius e^epsilon (e^epsilon + 1) / ((e^epsilon - 1)(e^epsilon - a)): the ends have the ratio e^epsilon at
    +-bound, the middle and an end have it at 0 (where a > 0). a = P[0 | 0] in [0, e^epsilon / (e^epsilon + 2)] is the
    one of least worst-case variance, found numerically; it is 0, Duchi's mechanism, for epsilon up to ln 2. The draws
    are those of the laws at -radius, 0 and radius, mixed, so that rounding a private value costs nothing; chances are
    rounded to 2^-53.
    """

    radius: float = NOT_GIVEN
    source: ClassVar[str] = "Zhao et al. 2020 (Local Differential Privacy based Federated Learning for IoT), section IV"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_radius("radius", self.radius)

    @cached_property
    def nothing(self) -> float:
        """The paper's a: chance that 0 is reported of 0."""
        most = 1 / (1 + 2 * math.exp(-self.epsilon))
        grid = np.linspace(0.0, most, 65)
        best = int(np.argmin([_worst_variance(a, self.epsilon) for a in grid]))
        around = (grid[max(best - 1, 0)], grid[min(best + 1, 64)])
        found = minimize_scalar(_worst_variance, bounds=around, args=(self.epsilon,), method="bounded")
        # The search ends near an edge, never on it.
        return float(min([0.0, most, found.x], key=lambda a: _worst_variance(a, self.epsilon)))

    @property
    def bound(self) -> float:
        """The size of a report that is not 0."""
        return self.radius * _bound(self.nothing, self.epsilon)

    def _chances(self, value: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Of 0 and of +bound."""
        true = numbers(value, self.radius)
        zero = self.nothing * (1 + math.expm1(-self.epsilon) * np.abs(true) / self.radius)
        return np.asarray(zero), np.asarray((1 - zero + true / self.bound) / 2)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        true = numbers(values, self.radius)
        flat = true.ravel()
        end = coin(np.abs(flat) / self.radius, flat.size, rng) * np.sign(flat) * self.radius
        zero, up = self._chances(end)
        size = np.where(coin(zero, flat.size, rng), 0.0, self.bound)
        sign = np.where(coin(up / (1 - zero), flat.size, rng), 1.0, -1.0)
        return (size * sign).reshape(true.shape)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        seen = np.asarray(reports, dtype=np.float64)
        zero, up = self._chances(value)
        chance = np.select([seen == 0, seen > 0], [zero, up], 1 - zero - up)
        known = (seen == 0) | np.isclose(np.abs(seen), self.bound, rtol=1e-12, atol=0)
        with np.errstate(divide="ignore"):
            return np.where(known, np.log(chance), -np.inf)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> Outputs:
        return finite(np.array([-self.bound, 0.0, self.bound]))

    def inputs(self) -> FloatArray:
        return np.array([-self.radius, 0.0, self.radius])

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        return np.array(-self.radius), np.array(self.radius)

    def estimate(self, reports: ArrayLike) -> FloatArray:
        return np.asarray(reports, dtype=np.float64)

    def variance(self, value: ArrayLike) -> FloatArray:
        zero, _ = self._chances(value)
        return np.asarray(self.bound**2 * (1 - zero) - numbers(value, self.radius) ** 2)


def _bound(a: float, epsilon: float) -> float:
    return 1 / (math.tanh(epsilon / 2) * (1 - a * math.exp(-epsilon)))


def _worst_variance(a: float, epsilon: float) -> float:
    """Largest over |value| <= 1 of bound^2 (1 - a + a (1 - e^-eps) |value|) - value^2, a parabola in |value|."""
    bound, slope = _bound(a, epsilon), -a * math.expm1(-epsilon)
    top = min(1.0, bound**2 * slope / 2)
    return bound**2 * (1 - a + slope * top) - top**2
