"""A linear score that separates two groups of observations."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray

_TAIL, _LARGE = 1e-3, 1e30
"""Share of the runs beyond each end of a number's range, and what stands for one that is not finite."""
_SHRINKAGE = 0.05
"""Share of the covariance that is replaced by its diagonal, so that it can be inverted."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Limits:
    """The range of each number (numbers,) in the runs from which a score is learned, and its scale there."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, runs: FloatArray) -> "_Limits":
        low, high = np.quantile(_finite(runs), [_TAIL, 1 - _TAIL], axis=0)
        return cls(low=low, high=high)

    @property
    def scale(self) -> FloatArray:
        return self.high - self.low

    def kept(self, runs: FloatArray) -> FloatArray:
        # A run that diverged has numbers of any size, or none: cut off, it remains an observation like any other.
        return np.clip(_finite(runs), self.low, self.high)


def _finite(runs: FloatArray) -> FloatArray:
    return np.nan_to_num(runs, nan=_LARGE, posinf=_LARGE, neginf=-_LARGE)


def discriminant(out: FloatArray, within: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the linear discriminant (Fisher 1936) of two groups ``(n, numbers)``, higher means ``within``.

    Numbers are cut off at their extremes in these groups, and the covariance is shrunk towards its diagonal.
    """
    limits = _Limits.of(np.concatenate([out, within]))
    # A number that never varies, or varies by rounding alone, carries nothing that a score could use.
    useful = limits.scale > 1e-9 * np.maximum(1e-30, np.maximum(np.abs(limits.low), np.abs(limits.high)))
    if not useful.any():
        return lambda runs: np.zeros(len(runs))

    def scaled(runs: FloatArray) -> FloatArray:
        return ((limits.kept(runs) - limits.low) / np.where(useful, limits.scale, 1.0))[:, useful]

    zero, one = scaled(out), scaled(within)
    centred = np.concatenate([zero - zero.mean(0), one - one.mean(0)])
    covariance = centred.T @ centred / max(1, len(centred) - 2)
    covariance = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * np.diag(np.diag(covariance) + 1e-9)
    direction = np.linalg.solve(covariance, one.mean(0) - zero.mean(0))
    return lambda runs: scaled(runs) @ direction
