"""Conversions between mu-GDP and (epsilon, delta)-DP, by the hockey-stick divergence of two Gaussians.

``delta = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)`` (Balle and Wang 2018, theorem 8; Dong, Roth, Su 2022,
corollary 1). It is computed with logarithms, because the printed formula is 0 or overflows for small and large mu.
"""

import math
from collections.abc import Callable

from scipy.special import log_ndtr, ndtri


def delta_from_mu(mu: float, epsilon: float) -> float:
    """Return the smallest delta at which a mu-GDP mechanism is (``epsilon``, delta)-DP.

    ``epsilon`` >= 0 and ``mu`` >= 0. Raises ValueError outside these ranges.
    """
    return math.exp(_log_delta(mu, epsilon))


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which a mu-GDP mechanism is (epsilon, ``delta``)-DP, for delta in [0, 1).

    It is infinite at delta 0 and mu > 0. Raises ValueError for mu < 0 and for a delta out of range.
    """
    _check(mu, 0.0, delta)
    if mu == 0:
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    # Bracket from above: at this epsilon the first term alone, Phi(-eps/mu + mu/2), is already equal to delta.
    high = mu * mu / 2 - mu * float(ndtri(delta))
    return _bisect(lambda epsilon: _log_delta(mu, epsilon) > target, 0.0, high)


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest mu for which every mu-GDP mechanism is (``epsilon``, ``delta``)-DP; 0 at delta 0.

    The inverse of ``epsilon_from_mu``. Raises ValueError for an infinite epsilon, which every mu satisfies.
    """
    _check(0.0, epsilon, delta)
    if math.isinf(epsilon):
        raise ValueError(f"epsilon must be finite, got {epsilon}")
    if delta == 0:
        return 0.0
    target = math.log(delta)
    high = 1.0
    while _log_delta(high, epsilon) <= target:
        high *= 2
    return _bisect(lambda mu: _log_delta(mu, epsilon) <= target, 0.0, high)


def _log_delta(mu: float, epsilon: float) -> float:
    _check(mu, epsilon, 0.0)
    if mu == 0:
        return -math.inf
    left = float(log_ndtr(mu / 2 - epsilon / mu))
    right = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    # Far out in the tail both terms agree to the last digit, and delta is 0 to double precision.
    return left + math.log(-math.expm1(right - left)) if right < left else -math.inf


def _bisect(below: Callable[[float], bool], low: float, high: float) -> float:
    """The largest number in [low, high] at which ``below`` still holds, to double precision."""
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if below(middle) else (low, middle)
    return low


def _check(mu: float, epsilon: float, delta: float) -> None:
    if not mu >= 0:
        raise ValueError(f"mu must be >= 0, got {mu}")
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta}")
