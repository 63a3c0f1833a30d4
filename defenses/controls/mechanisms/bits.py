"""Randomised bits: what each client sends by randomised response."""

import numpy as np
from scipy.special import expit


def randomised_response(bits: np.ndarray, *, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Each of the ``bits`` kept with probability e^eps / (1 + e^eps), else flipped (Warner 1965); same shape."""
    return np.asarray(np.where(rng.random(bits.shape) < expit(epsilon), bits, 1 - bits))
