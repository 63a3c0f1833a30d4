"""Add exactly calibrated Gaussian noise to one number (Gaussian mechanism: Balle and Wang 2018, Algorithm 1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ....audit.curve import GaussianCurve, epsilon_from_mu
from ...accounting.gaussian import gaussian_noise
from ..randomiser import BoundedNumber, WeightedReports, numbers, quadrature


@dataclass(frozen=True, kw_only=True)
class Gaussian(BoundedNumber):
    """A randomiser that reports value + N(0, noise_std^2) for a value in [-radius, radius]; it is (epsilon, delta)-DP
    and states its trade-off curve.

    Two values are up to 2 radius apart. The classic sqrt(2 ln(1.25 / delta)) / epsilon is proved for epsilon <= 1 only
    and is not used.

    Args:
        delta: in (0, 1), because no Gaussian has a finite epsilon at delta 0.
    """

    delta: float = 0.0
    source = "Balle and Wang 2018, Theorem 8"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta must lie in (0, 1), got {self.delta}: Gaussian noise has no finite epsilon at delta 0"
            )

    @property
    def noise_std(self) -> float:
        """Return the standard deviation of the noise, in units of the value."""
        return 2 * self.radius * gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=1)

    @property
    def curve(self) -> GaussianCurve:
        return GaussianCurve(mu=2 * self.radius / self.noise_std)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        centres = numbers(values, self.radius)
        return np.asarray(centres + self.noise_std * rng.standard_normal(centres.shape))

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        std = self.noise_std
        z = (np.asarray(reports, dtype=np.float64) - numbers(value, self.radius)) / std
        return np.asarray(-(z**2) / 2 - math.log(std * math.sqrt(2 * math.pi)))

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        # Nine deviations leave about 1e-19 of the mass outside.
        reach = self.radius + 9 * self.noise_std
        return quadrature([*np.linspace(-reach, reach, 37), *cuts])

    def exact_epsilon(self) -> float:
        """Compute the epsilon at ``delta`` from the trade-off curve, because the log-ratio of Gaussian noise is
        unbounded.
        """
        return epsilon_from_mu(self.curve.mu, self.delta)
