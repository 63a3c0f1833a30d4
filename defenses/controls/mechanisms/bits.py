"""Randomise bits by randomised response; several mechanisms with planted bugs use it."""

import numpy as np
from scipy.special import expit


def randomised_response(bits: np.ndarray, *, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Keep each of the ``bits`` with probability e^eps / (1 + e^eps), otherwise flip it (Warner 1965); return an array
    of the same shape.
    """
    return np.asarray(np.where(rng.random(bits.shape) < expit(epsilon), bits, 1 - bits))
