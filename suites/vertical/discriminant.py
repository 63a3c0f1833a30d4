"""A linear score that separates two groups of observations."""

from collections.abc import Callable

import numpy as np

from ...audit.arrays import FloatArray

_SHRINKAGE = 0.05
"""Share of the covariance that is replaced by its diagonal, so that it can be inverted."""


def discriminant(out: FloatArray, within: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the linear discriminant (Fisher 1936) of two groups ``(n, numbers)``, higher means ``within``.

    The covariance is shrunk towards its diagonal.
    """
    scale = np.concatenate([out, within]).std(0)
    # A number that never varies, or varies by rounding alone, carries nothing that a score could use.
    useful = scale > 1e-9 * max(1e-30, float(np.abs(out).max()))
    if not useful.any():
        return lambda runs: runs[:, 0]
    zero, one = (side[:, useful] / scale[useful] for side in (out, within))
    centred = np.concatenate([zero - zero.mean(0), one - one.mean(0)])
    covariance = centred.T @ centred / max(1, len(centred) - 2)
    covariance = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * np.diag(np.diag(covariance) + 1e-9)
    direction = np.linalg.solve(covariance, one.mean(0) - zero.mean(0))
    return lambda runs: (runs[:, useful] / scale[useful]) @ direction
