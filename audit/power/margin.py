"""Margin: how far a pair of error rates lies under a curve, in standard deviations of the trials that will count it."""

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import FloatArray
from ..curve import Curve


def margin(curve: Curve, fpr: ArrayLike, fnr: ArrayLike, n: int) -> FloatArray:
    """Positive under the curve: ``(f(fpr) - fnr)`` over the spread that ``n`` trials a world give to it.

    Rates in (0, 1), broadcastable. The threshold of the largest margin is the one that most likely refutes; its
    place does not hang on ``n``.
    """
    false_in, false_out = np.broadcast_arrays(np.asarray(fpr, dtype=np.float64), np.asarray(fnr, dtype=np.float64))
    step = np.minimum(1e-3, np.minimum(false_in, 1 - false_in) / 2)
    slope = (curve.fnr(false_in + step) - curve.fnr(false_in - step)) / (2 * step)
    spread = np.sqrt((false_out * (1 - false_out) + slope**2 * false_in * (1 - false_in)) / n)
    return np.asarray((curve.fnr(false_in) - false_out) / spread, dtype=np.float64)
