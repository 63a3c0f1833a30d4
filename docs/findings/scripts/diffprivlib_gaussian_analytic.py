"""The calibration subtracts two numbers that cancel, so at large epsilon the noise is too small.

Library: diffprivlib==0.6.6.
"""

import numpy as np
from diffprivlib.mechanisms import GaussianAnalytic
from scipy.optimize import brentq
from scipy.special import log_ndtr


def delta(sigma, epsilon):  # Balle and Wang 2018, theorem 8, without cancellation
    first = np.exp(log_ndtr(1 / (2 * sigma) - epsilon * sigma))
    return first - np.exp(epsilon + log_ndtr(-1 / (2 * sigma) - epsilon * sigma))


EPSILON, DELTA = 28.05, 1e-5
sigma = GaussianAnalytic(epsilon=EPSILON, delta=DELTA, sensitivity=1)._scale
needed = brentq(lambda s: np.log(delta(s, EPSILON) / DELTA), sigma / 2, 2 * sigma)
ratio = max(
    delta(GaussianAnalytic(epsilon=e, delta=1e-5, sensitivity=1)._scale, e) / 1e-5 for e in np.arange(0.1, 10, 0.05)
)
print(f"sigma {sigma:.4f}, needed {needed:.4f}; up to epsilon 10 delta is at most {ratio:.5f} of the claim")
print(f"verdict: REFUTED, delta {delta(sigma, EPSILON) / DELTA:.2f} times the claim at epsilon 28.05 (up to 10: holds)")
