"""Counts of randomised bits, exactly: what an analyser learns from the number of ones."""

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from ...audit.binomial import FloatArray


def distribution(bit: int, *, epsilon: float, others: int, others_epsilon: float) -> FloatArray:
    """Law of the number of ones, ``(others + 2,)``: one client's randomised ``bit`` among others who all hold 0.

    Each sends its bit by randomised response at its epsilon: truly with probability e^eps / (1 + e^eps).
    """
    rest = binom.pmf(np.arange(others + 1), others, expit(-others_epsilon))
    one = float(expit(epsilon if bit else -epsilon))
    return np.asarray(np.convolve(rest, [1 - one, one]), dtype=np.float64)


def smallest_epsilon(p: FloatArray, q: FloatArray, delta: float) -> float:
    """The least epsilon >= 0 at which two distributions ``(k,)`` are (epsilon, delta)-close both ways, rounded up."""

    def apart(epsilon: float) -> bool:
        ratio = np.exp(epsilon)
        return bool(max(np.maximum(p - ratio * q, 0).sum(), np.maximum(q - ratio * p, 0).sum()) > delta)

    low, high = 0.0, 1.0
    while apart(high):
        low, high = high, 2 * high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if apart(middle) else (low, middle)
    return high


def randomised_response(bits: np.ndarray, *, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Each of the ``bits`` kept with probability e^eps / (1 + e^eps), else flipped (Warner 1965); same shape."""
    return np.asarray(np.where(rng.random(bits.shape) < expit(epsilon), bits, 1 - bits))
