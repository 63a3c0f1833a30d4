"""Find the standard deviation of integer noise with which a secure sum satisfies a privacy budget.

All lengths are in steps of the grid: ``norm`` is the L2 sensitivity, a bound on an integer row of ``dimension``
coordinates, whose L1 norm is therefore at most ``min(sqrt(dimension) norm, norm^2)``. All rounds together satisfy
(epsilon, delta), by Renyi divergences; results are too large by at most a factor 1 + 1e-4.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from ..defense import check_budget
from .conversion import epsilon_at_best_order, epsilon_from_rdp, epsilon_from_zcdp
from .discrete import (
    binomial_epsilon,
    binomial_least,
    binomial_rdp,
    binomial_tail,
    discrete_gaussian_rdp,
    skellam_rdp,
)

_FINE = 1e-4
# Share of delta for binomial noise that leaves its window.
_LEAKED = 0.01


def discrete_gaussian_noise(
    norm: float, *, epsilon: float, delta: float, rounds: int, dimension: int, shares: int
) -> float:
    """Return the standard deviation with which the sum of ``shares`` discrete Gaussian noises satisfies the budget;
    each noise has a whole number as its variance.
    """

    def keeps(variance: float) -> bool:
        law = {"l2": norm, "l1": _length(norm, dimension), "sigma": math.sqrt(math.ceil(variance / shares))}
        return _keeps(
            lambda order: rounds * discrete_gaussian_rdp(order, shares=shares, dimension=dimension, **law),
            epsilon,
            delta,
        )

    least = _gaussian(norm, epsilon=epsilon, delta=delta, rounds=rounds) ** 2
    return math.sqrt(shares * math.ceil(_smallest(keeps, least) / shares))


def whole_share(total: float, shares: int) -> int:
    """Return one client's share of a total noise variance, ``total / shares``, rounded up to a whole number >= 1; a
    relative excess of 1e-12 counts as a floating-point error and is not rounded up.
    """
    return max(1, math.ceil(total / shares * (1 - 1e-12)))


def skellam_noise(norm: float, *, epsilon: float, delta: float, rounds: int, dimension: int) -> float:
    """Return the standard deviation of Skellam noise that satisfies the budget. Only whole Renyi orders are used,
    because the theorem holds for no others.
    """
    length = _length(norm, dimension)

    def keeps(sigma: float) -> bool:
        spent = epsilon_from_rdp(lambda a: rounds * skellam_rdp(a, l1=length, l2=norm, variance=sigma**2), delta)
        return spent <= epsilon

    return _smallest(keeps, _gaussian(norm, epsilon=epsilon, delta=delta, rounds=rounds))


def binomial_noise(norm: float, *, epsilon: float, delta: float, rounds: int, dimension: int, shares: int) -> float:
    """Return the standard deviation of centred binomial noise (fair coin tosses) that satisfies the budget. Each of
    ``shares`` clients tosses an even number of coins; a hundredth of delta covers the event that a noise value is too
    large for the bound.
    """

    def keeps(sigma: float) -> bool:
        spent = binomial_noise_epsilon(norm, sigma=sigma, delta=delta, rounds=rounds, dimension=dimension)
        return spent <= epsilon

    return _of_coins(_smallest(keeps, _gaussian(norm, epsilon=epsilon, delta=delta, rounds=rounds)), shares)


def binomial_noise_epsilon(norm: float, *, sigma: float, delta: float, rounds: int, dimension: int) -> float:
    """Compute by Renyi divergences the epsilon at ``delta`` of all rounds together, each with centred binomial noise of
    standard deviation ``sigma``; return infinity if there are too few coin tosses for the bound.
    """
    law = {"l2": norm, "l1": _length(norm, dimension), "largest": norm}
    # Rounds up within float error: the square of a stored root may lie just below the whole number of coins.
    trials = math.floor(4 * sigma**2 * (1 + 1e-12))
    window = sigma * math.sqrt(2 * math.log(2 * dimension * rounds / (_LEAKED * delta)))
    if trials < 1:
        return math.inf
    tail = rounds * binomial_tail(trials=trials, window=window, dimension=dimension)
    if tail >= delta:
        return math.inf
    # Outcomes within the window follow a conditional law, whose divergence is larger by the last term.
    return epsilon_at_best_order(
        lambda a: rounds * binomial_rdp(a, trials=trials, window=window, **law) - a / (a - 1) * math.log1p(-tail),
        delta - tail,
    )


def published_binomial_noise(
    norm: float, *, epsilon: float, delta: float, rounds: int, dimension: int, shares: int
) -> float:
    """Return the standard deviation of centred binomial noise by Theorem 1 of Agarwal et al. (2018), if each round gets
    an equal share of epsilon and delta.
    """
    check_budget(epsilon, delta)
    law = {"scale": 1.0, "l1": _length(norm, dimension), "l2": norm, "largest": norm}

    def keeps(sigma: float) -> bool:
        trials = math.ceil(4 * sigma**2)
        part = binomial_epsilon(trials=trials, dimension=dimension, delta=delta / rounds, **law)
        return part <= epsilon / rounds

    least = math.sqrt(binomial_least(norm, dimension=dimension, delta=delta / rounds)) / 2
    return _of_coins(_smallest(keeps, least), shares)


def _of_coins(sigma: float, shares: int) -> float:
    return math.sqrt(shares * whole_share(2 * sigma**2, shares) / 2)


def _gaussian(norm: float, *, epsilon: float, delta: float, rounds: int) -> float:
    """The noise of a continuous Gaussian by the same divergences: a starting point below every result of this file."""
    return norm * math.sqrt(rounds / (2 * _zcdp(epsilon, delta)))


@lru_cache(maxsize=64)
def _zcdp(epsilon: float, delta: float) -> float:
    """The largest rho, to a relative 1e-9, whose zero-concentrated DP implies (epsilon, delta)."""
    check_budget(epsilon, delta)
    low, high = 0.0, 1.0
    while epsilon_from_zcdp(high, delta) <= epsilon:
        low, high = high, 2 * high
    # By bisection, because the conversion has no closed inverse.
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_from_zcdp(middle, delta) <= epsilon else (low, middle)
    return low


def _length(norm: float, dimension: int) -> float:
    """Bound on the L1 norm of an integer row of L2 norm ``norm``."""
    return min(math.sqrt(dimension) * norm, norm**2)


def _keeps(rdp: Callable[[float], float], epsilon: float, delta: float) -> bool:
    return epsilon_at_best_order(rdp, delta) <= epsilon


def _smallest(keeps: Callable[[float], bool], least: float) -> float:
    """The smallest number from ``least`` on, to a relative 1e-4 and on the safe side, that satisfies a budget."""
    if keeps(least):
        return least
    low, high = least, least * (1 + _FINE)
    while not keeps(high):
        low, high = high, high + 2 * (high - least)
        if math.isinf(high):
            raise ValueError("no amount of integer noise satisfies the requested epsilon and delta; raise one of them")
    while high - low > _FINE * least:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high
