"""Randomised response of bits, which several mutants send."""

import numpy as np
from scipy.special import expit


def randomised_response(bits: np.ndarray, *, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Keeps each of the ``bits`` with probability e^eps / (1 + e^eps), else flips it (Warner 1965); same shape."""
    return np.asarray(np.where(rng.random(bits.shape) < expit(epsilon), bits, 1 - bits))
