"""Calibration: the standard deviation of the sum's noise that a budget needs, one function a law.

Everything is in steps of the grid: ``norm`` is the L2 sensitivity to one client set to zero, a bound on an integer row
of ``dim`` coordinates, and ``sigma`` the standard deviation of the noise in one coordinate of the sum.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

from ..accounting.accountant import ACCOUNTANT
from ..accounting.gaussian import gaussian_noise

RENYI = ACCOUNTANT.replace("PLD", "RDP to (epsilon, delta)")
_ORDERS = np.concatenate([np.arange(2, 128), np.arange(128, 1025, 16)]).astype(float)


def gaussian_sigma(norm: float, *, epsilon: float, delta: float, rounds: int) -> float:
    """Continuous Gaussian (Balle and Wang 2018, Theorem 8)."""
    return norm * gaussian_noise(epsilon=epsilon, delta=delta, releases=rounds)


def discrete_gaussian_sigma(norm: float, *, epsilon: float, delta: float, rounds: int, dim: int, shares: int) -> float:
    """A sum of ``shares`` discrete Gaussians of variance sigma^2 / shares (Kairouz, Liu, Steinke 2021, Theorem 1)."""
    budget = zcdp_budget(epsilon, delta) / rounds
    return _smallest(lambda sigma: discrete_gaussian_rho(sigma, norm, dim=dim, shares=shares) <= budget, norm)


def discrete_gaussian_rho(sigma: float, norm: float, *, dim: int, shares: int) -> float:
    """zCDP of one round: half the square of min(sqrt(norm^2/sigma^2 + tau d/2), norm/sigma + tau sqrt d), where tau is
    the distance of a sum of discrete Gaussians from one (Kairouz et al. 2021, Theorem 1).
    """
    share = sigma**2 / shares
    # Terms of exp(-2 pi^2 ...) below 1e-300 are zero anyway; they fall from k = 1 on.
    gap = 10 * sum(math.exp(-2 * math.pi**2 * share * k / (k + 1)) for k in range(1, min(shares, 10_000)))
    first = math.sqrt((norm / sigma) ** 2 + gap * dim / 2)
    return min(first, norm / sigma + gap * math.sqrt(dim)) ** 2 / 2


def skellam_sigma(norm: float, *, epsilon: float, delta: float, rounds: int, dim: int) -> float:
    """Skellam noise: the smallest sigma whose Renyi divergences keep the budget over all rounds."""
    # A row of integers has an L1 norm of at most the square of its L2 norm.
    length = min(math.sqrt(dim) * norm, norm**2)

    def keeps(sigma: float) -> bool:
        rdp = rounds * skellam_rdp(sigma, norm, length)
        return epsilon_of_rdp(rdp, delta) <= epsilon

    return _smallest(keeps, norm)


def skellam_rdp(sigma: float, norm: float, length: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Renyi divergences of one round at whole orders (Agarwal, Kairouz, Liu 2021, Theorem 3.5): L2 sensitivity
    ``norm`` and L1 sensitivity ``length``. A survey that prints one sensitivity for both is wrong.
    """
    variance = sigma**2
    inexact = np.minimum(((2 * _ORDERS - 1) * norm**2 + 6 * length) / (4 * variance**2), 3 * length / (2 * variance))
    rdp: np.ndarray[tuple[int], np.dtype[np.float64]] = _ORDERS * norm**2 / (2 * variance) + inexact
    return rdp


def binomial_sigma(norm: float, *, epsilon: float, delta: float, rounds: int, dim: int) -> float:
    """Binomial noise of fair coins, each round at an equal part of epsilon and delta (basic composition).

    A round's part is taken as 1 at most: on a fine grid the theorem is the classic Gaussian formula, which is proved up
    to 1 and wrong at 10, where it asks for .4845 norms and .4999 are needed.
    """
    part = min(1.0, epsilon / rounds), delta / rounds
    return _smallest(lambda sigma: binomial_epsilon(sigma, norm, delta=part[1], dim=dim) <= part[0], norm)


def binomial_epsilon(sigma: float, norm: float, *, delta: float, dim: int) -> float:
    """Epsilon of one round (Agarwal et al. 2018, Theorem 1 at p = 1/2), infinite outside the theorem's range:
    a variance of at least max(23 log(10 d / delta), 2 L-infinity sensitivities).
    """
    variance, longest = sigma**2, norm
    if variance < max(23 * math.log(10 * dim / delta), 2 * longest):
        return math.inf
    length = min(math.sqrt(dim) * norm, norm**2)
    tail = math.log(1.25 / delta)
    gaussian = norm * math.sqrt(2 * tail) / sigma
    second = (norm * 1.75 * math.sqrt(2) * math.sqrt(math.log(10 / delta)) + length / 3) / (1 - delta / 10)
    third = longest * (2 / 3 * tail + 2 / 3 * math.log(20 * dim / delta) * math.log(10 / delta))
    return gaussian + (second + third) / variance


def epsilon_of_rdp(rdp: "np.ndarray[tuple[int], np.dtype[np.float64]]", delta: float) -> float:
    """The smallest epsilon at ``delta`` of divergences at this file's orders (Canonne et al. 2020, Proposition 12)."""
    return float(compute_epsilon(_ORDERS, rdp, delta)[0])


@lru_cache(maxsize=64)
def zcdp_budget(epsilon: float, delta: float) -> float:
    """The largest rho whose concentrated DP implies (epsilon, delta), by Renyi divergences alpha rho."""
    # The inverse of a growing function: sqrt(1 / rho) falls as rho grows.
    spread = _smallest(lambda s: epsilon_of_rdp(_ORDERS / (s * s), delta) <= epsilon, 1.0)
    return 1 / spread**2


def _smallest(keeps: Callable[[float], bool], guess: float) -> float:
    """The smallest positive number, to 1e-6 of itself and on the safe side, that keeps a budget."""
    high = guess
    while not keeps(high):
        high *= 2
        if math.isinf(high):
            raise ValueError("epsilon and delta must be within reach of some noise, and no noise keeps them")
    low = 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high
