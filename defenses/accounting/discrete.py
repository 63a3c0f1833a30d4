"""Discrete noise for secure sums: Renyi divergences of discrete Gaussian, Skellam and Poisson-binomial; the binomial.

Sensitivities are in units of the integer grid, after scaling **and rounding**. Each guarantee is about the modular or
plain sum that the server opens.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from ...audit.binomial import FloatArray
from ..defense import check_delta, check_positive
from .counts import CountLaw, CountPair, binomial

_MOST_BITS = 4000
_TINY = 1e-250


def discrete_gaussian_rdp(
    order: float, *, l2: float, sigma: float, shares: int = 1, l1: float | None = None, dimension: int | None = None
) -> float:
    """Renyi divergence at ``order`` > 1 of discrete Gaussian noise, or of a sum of ``shares`` of it.

    One share: ``order l2^2 / (2 sigma^2)``, as the continuous one (Canonne, Kamath, Steinke 2020). A sum of
    discrete Gaussians is none, but near: the least of three bounds in tau = 10 sum_k exp(-2 pi^2 sigma^2 k / (k + 1))
    (Kairouz, Liu, Steinke 2021, Proposition 14).

    Args:
        l2, l1: sensitivities of the rounded vector; ``l1`` is optional.
        sigma: parameter of **each** share, >= .5 where there are several.
        dimension: of the vector; required for several shares.
    """
    _check_order(order)
    check_positive("l2", l2)
    check_positive("sigma", sigma)
    _check_whole("shares", shares)
    scale = l2 / (math.sqrt(shares) * sigma)
    if shares == 1:
        return order * scale**2 / 2
    if dimension is None or sigma < 0.5:
        raise ValueError(f"several shares must have a dimension and sigma >= 0.5, got {dimension} and {sigma}")
    _check_whole("dimension", dimension)
    tau = 10 * math.fsum(math.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)) for k in range(1, shares))
    bounds = [order * scale**2 / 2 + tau * dimension, order * (scale + math.sqrt(dimension) * tau) ** 2 / 2]
    if l1 is not None:
        check_positive("l1", l1)
        taxicab = l1 / (math.sqrt(shares) * sigma)
        bounds.append(order * (scale**2 + 2 * taxicab * tau + tau**2 * dimension) / 2)
    return min(bounds)


def skellam_rdp(order: int, *, l1: float, l2: float, variance: float) -> float:
    """Renyi divergence at a whole ``order`` >= 2 of Skellam noise of that ``variance`` a coordinate (of the sum).

    ``a l2^2 / (2 v) + min(((2 a - 1) l2^2 + 6 l1) / (4 v^2), 3 l1 / (2 v))`` (Agarwal, Kairouz, Liu 2021, the
    bound for vectors). The survey (Fu et al. 2024) prints one sensitivity where the theorem has two.
    """
    _check_order(order)
    if int(order) != order:
        raise ValueError(f"order must be whole for Skellam noise, got {order}")
    for name, value in (("l1", l1), ("l2", l2), ("variance", variance)):
        check_positive(name, value)
    excess = ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2)
    return order * l2**2 / (2 * variance) + min(excess, 3 * l1 / (2 * variance))


@lru_cache(maxsize=512)
def poisson_binomial_rdp(order: float, *, clients: int, trials: int, theta: float) -> float:
    """Renyi divergence at ``order`` > 1 of one coordinate of the Poisson-binomial mechanism, replace-one, exact.

    Each client sends Bin(``trials``, 1/2 + theta x) with x in [-1, 1] (Chen, Ozgur, Kairouz 2022). By
    joint quasi-convexity the worst case has one client move from one end to the other and every other bit at an end;
    the largest over the number of bits at the upper end is taken, so it holds for all data. A vector of d coordinates
    costs d times as much.

    Args:
        theta: in (0, 1/2).

    Raises:
        ValueError: for more than 4000 bits of the others, which are not enumerated.
    """
    _check_order(order)
    _check_whole("clients", clients)
    _check_whole("trials", trials)
    if not 0 < theta < 0.5:
        raise ValueError(f"theta must be in (0, 1/2), got {theta}")
    bits = (clients - 1) * trials
    if bits > _MOST_BITS:
        raise ValueError(f"(clients - 1) * trials must be <= {_MOST_BITS} to be enumerated, got {bits}")
    high, low = _end(trials, 0.5 + theta), _end(trials, 0.5 - theta)
    # The ratio of two outcomes is at most this; what the windows leave out is charged at it.
    worst = trials * math.log((0.5 + theta) / (0.5 - theta))
    found = 0.0
    for upper in range(bits + 1):
        others = _both(_end(upper, 0.5 + theta), _end(bits - upper, 0.5 - theta))
        # The other direction is the mirror image, at ``bits - upper``.
        found = max(found, _renyi(order, _both(others, high), _both(others, low), worst))
    return found


def binomial_pair(*, trials: int, shift: int) -> CountPair:
    """Binomial noise, Bin(``trials``, 1/2), on an integer moved by ``shift``: one coordinate, exact.

    Its Renyi divergence is infinite at every order: the two supports differ. It keeps (epsilon, delta) alone.
    """
    _check_whole("trials", trials)
    _check_whole("shift", shift)
    law = binom.pmf(np.arange(trials + 1), trials, 0.5)
    return CountPair(np.append(law, np.zeros(shift)), np.append(np.zeros(shift), law))


def binomial_epsilon(
    *, trials: int, scale: float, l1: float, l2: float, largest: float, dimension: int, delta: float
) -> float:
    """Epsilon of ``scale`` (Bin(``trials``, 1/2) - ``trials`` / 2) on every coordinate (Agarwal et al. 2018, Theorem
    1).

    Args:
        l1, l2, largest: L1, L2 and L-infinity sensitivities of the vector on the grid of step ``scale``.

    Raises:
        ValueError: outside the theorem's regime, trials / 4 >= max(23 ln(10 d / delta), 2 largest / scale).
    """
    check_delta(delta)
    _check_whole("trials", trials)
    _check_whole("dimension", dimension)
    for name, value in (("scale", scale), ("l1", l1), ("l2", l2), ("largest", largest)):
        check_positive(name, value)
    variance, least = trials / 4, max(23 * math.log(10 * dimension / delta), 2 * largest / scale)
    if variance < least:
        raise ValueError(f"trials must be >= {math.ceil(4 * least)} for this theorem, got {trials}")
    # The theorem's b, c and d at a fair coin.
    b, c, d = 1 / 3, math.sqrt(2) * 7 / 4, 2 / 3
    gauss = l2 * math.sqrt(2 * math.log(1.25 / delta)) / (scale * math.sqrt(variance))
    third = (l2 * c * math.sqrt(math.log(10 / delta)) + l1 * b) / (scale * variance * (1 - delta / 10))
    tail = 2 / 3 * math.log(1.25 / delta) + d * math.log(20 * dimension / delta) * math.log(10 / delta)
    return gauss + third + largest * tail / (scale * variance)


def _end(bits: int, probability: float) -> CountLaw:
    return binomial(bits, probability, dropped=_TINY)


def _both(one: CountLaw, other: CountLaw) -> CountLaw:
    return CountLaw(one.first + other.first, np.convolve(one.pmf, other.pmf), one.lost + other.lost)


def _renyi(order: float, p: CountLaw, q: CountLaw, worst: float) -> float:
    """Renyi divergence of p from q where both have mass, and at most what their windows leave out."""
    first, end = max(p.first, q.first), min(p.first + p.pmf.size, q.first + q.pmf.size)
    shared_p, shared_q = (_slice(law, first, end) for law in (p, q))
    inside = (shared_p > 0) & (shared_q > 0)
    terms = order * np.log(shared_p[inside]) + (1 - order) * np.log(shared_q[inside])
    outside = p.lost + q.lost + _rest(p, first, end) + float(shared_p[~inside].sum())
    charged = [math.log(outside) + (order - 1) * worst] if outside > 0 else []
    return float(logsumexp([*terms.tolist(), *charged])) / (order - 1)


def _slice(law: CountLaw, first: int, end: int) -> FloatArray:
    return law.pmf[first - law.first : end - law.first]


def _rest(law: CountLaw, first: int, end: int) -> float:
    return float(law.pmf[: first - law.first].sum() + law.pmf[end - law.first :].sum())


def _check_order(order: float) -> None:
    if not 1 < order < math.inf:
        raise ValueError(f"order must be > 1 and finite, got {order!r}")


def _check_whole(name: str, value: int) -> None:
    if value < 1 or int(value) != value:
        raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
