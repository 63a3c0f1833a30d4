"""Add Laplace noise conditioned on a fixed output range (clip-Laplace: Liu et al. 2023, APES, equation 1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..randomiser import BoundedNumber, WeightedReports, numbers, quadrature


@dataclass(frozen=True, kw_only=True)
class ClippedLaplace(BoundedNumber):
    """A randomiser whose report has the density of Laplace noise, of scale 2 * radius / epsilon around the value,
    conditioned on [-reach, reach].

    Values lie in [-radius, radius] (the paper's C), reports in [-reach, reach] (its A; ``reach`` >= ``radius``, by
    default the radius). S is symmetric in the value, so the farthest pair has exactly the ratio e^epsilon; where reach
    = radius, only at the single point y = reach. **Biased**: no function of one report removes the bias for all values.
    """

    reach: float | None = None
    source = "Liu et al. 2023 (APES), Theorem 1"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reach is not None and not self.radius <= self.reach < math.inf:
            raise ValueError(
                f"reach, the largest possible report, must be >= radius {self.radius} and finite, got {self.reach}"
            )

    @property
    def scale(self) -> float:
        """Return the scale of the Laplace noise before it is conditioned on the output range, in units of the value."""
        return 2 * self.radius / self.epsilon

    @property
    def largest(self) -> float:
        """Return the largest possible report."""
        return self.radius if self.reach is None else self.reach

    def _cut_off(self, value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Laplace mass above and below the range."""
        above = np.exp(-(self.largest - value) / self.scale) / 2
        return np.asarray(above), np.asarray(np.exp(-(self.largest + value) / self.scale) / 2)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        centres = numbers(values, self.radius)
        above, below = self._cut_off(centres)
        # Inverts the distribution function restricted to the range; rejection would take a random number of draws.
        share = below + rng.random(centres.shape) * (1 - above - below)
        tail = np.minimum(share, 1 - share)
        noise = -self.scale * np.log(2 * tail) * np.sign(share - 0.5)
        return np.asarray(np.clip(centres + noise, -self.largest, self.largest))

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        seen, centre = np.asarray(reports, dtype=np.float64), numbers(value, self.radius)
        above, below = self._cut_off(centre)
        inside = -np.abs(seen - centre) / self.scale - np.log(2 * self.scale * (1 - above - below))
        return np.where(np.abs(seen) <= self.largest, inside, -np.inf)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        # The density has a kink at each value, where a quadrature needs a break.
        within = [float(edge) for edge in np.ravel([*values, *cuts, 0.0]) if abs(edge) < self.largest]
        return quadrature([*np.linspace(-self.largest, self.largest, 33), *within])

    def inputs(self) -> FloatArray:
        return np.linspace(-self.radius, self.radius, 41)
