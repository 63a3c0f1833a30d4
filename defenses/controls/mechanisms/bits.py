"""Bits: randomised response of bits, which several mutants (mechanisms with a planted bug) use."""

import numpy as np
from scipy.special import expit


def randomised_response(bits: np.ndarray, *, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Keep each of the ``bits`` with probability e^eps / (1 + e^eps), otherwise flip it (Warner 1965); the shape stays
    the same.
    """
    return np.asarray(np.where(rng.random(bits.shape) < expit(epsilon), bits, 1 - bits))
