"""Report a grid point; its probability falls exponentially with distance to the value (Truex et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from ....audit.arrays import FloatArray, IntArray
from ..randomiser import BoundedNumber, WeightedReports, check_given_count, finite, numbers, rejection


@dataclass(frozen=True, kw_only=True)
class Condensed(BoundedNumber):
    """A randomiser that reports a grid point with probability proportional to exp(-alpha |report - value| / 2); the
    grid has ``steps`` points on each side of 0.

    A value in [-radius, radius] is rounded to the nearest point; distances are in grid steps, 2 steps at most.
    Condensed LDP at alpha allows two values a ratio of e^(alpha distance), so it reveals more about far values than
    about near ones. **It is no LDP claim**; the claim here is epsilon for any two values, and alpha = epsilon / steps
    follows. The general theorem of the exponential mechanism would convert alpha to alpha times the largest distance, 2
    epsilon; but both ends of the range have the same normaliser, and the exact supremum is half of that. Drawn in
    integers.

    Biased towards the middle.

    Args:
        steps: grid points on each side of 0 (the paper's clip bound times ten to its precision), >= 1.
    """

    steps: int = 0
    source = "Truex et al. 2020 (LDP-Fed); Gursoy et al. 2019, condensed LDP"
    atomic = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("steps", self.steps, least=1)

    @property
    def alpha(self) -> float:
        """Return the parameter alpha of condensed LDP for distances in grid steps."""
        return self.epsilon / self.steps

    @property
    def _step(self) -> float:
        return self.radius / self.steps

    def _place(self, values: ArrayLike) -> IntArray:
        """Grid point of each value, -steps..steps."""
        return np.rint(numbers(values, self.radius) / self._step).astype(np.int64)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        place = self._place(values)
        flat = place.ravel()

        def propose(rows: NDArray[np.intp]) -> tuple[IntArray, FloatArray]:
            point = rng.integers(-self.steps, self.steps + 1, size=rows.size)
            return point, self.alpha / 2 * np.abs(point - flat[rows])

        return np.asarray(self._step * rejection(flat.size, propose, rng)).reshape(place.shape)

    def _points(self) -> IntArray:
        return np.arange(-self.steps, self.steps + 1)

    def _log_law(self, value: ArrayLike) -> FloatArray:
        """Log probabilities of the grid points for ``value`` (...,) -> (..., 2 steps + 1)."""
        distance = np.abs(self._points() - self._place(value)[..., np.newaxis])
        return np.asarray(log_softmax(-self.alpha / 2 * distance, axis=-1))

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        # Reports are grid points, so a density is looked up by index and not computed from floats.
        places, law = self._place(reports) + self.steps, self._log_law(value)
        law = np.broadcast_to(law, (*np.broadcast_shapes(places.shape, law.shape[:-1]), law.shape[-1]))
        return np.asarray(np.take_along_axis(law, np.broadcast_to(places, law.shape[:-1])[..., None], axis=-1)[..., 0])

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        return finite(self._step * self._points())

    def inputs(self) -> FloatArray:
        return np.asarray(self._step * self._points())
