"""Bound Renyi divergences of secure sums that carry discrete Gaussian, Skellam or binomial noise.

Sensitivities are in units of the integer grid, after scaling **and rounding**. Each guarantee is about the modular or
plain sum that the server obtains.
"""

import math
from functools import lru_cache

import numpy as np

from ...fl.fields import check_positive
from ..defense import check_delta, check_whole


def discrete_gaussian_rdp(
    order: float, *, l2: float, sigma: float, shares: int = 1, l1: float | None = None, dimension: int | None = None
) -> float:
    """Bound the Renyi divergence at ``order`` > 1 of a sum to which one discrete Gaussian noise, or ``shares`` such
    noises, are added.

    One share: ``order l2^2 / (2 sigma^2)``, as for the continuous Gaussian (Canonne, Kamath, Steinke 2020). A sum of
    discrete Gaussians is not one, but close to it: the smallest of three bounds in tau = 10 sum_k exp(-2 pi^2 sigma^2 k
    / (k + 1)) (Kairouz, Liu, Steinke 2021, Proposition 14).

    Args:
        l2, l1: sensitivities of the rounded vector; ``l1`` is optional.
        sigma: parameter of **each** share, >= .5 where there are several.
        dimension: of the vector; required for several shares.
    """
    check_order(order)
    check_positive("l2", l2)
    check_positive("sigma", sigma)
    check_whole("shares", shares)
    scale = l2 / (math.sqrt(shares) * sigma)
    if shares == 1:
        return order * scale**2 / 2
    if dimension is None or sigma < 0.5:
        raise ValueError(
            f"a sum of several noise shares needs a dimension and sigma >= 0.5, got dimension {dimension} and "
            f"sigma {sigma}"
        )
    check_whole("dimension", dimension)
    tau = _distance(sigma, shares)
    # Each of the bounds is the smallest one somewhere; all of them hold.
    bounds = [order * scale**2 / 2 + tau * dimension, order * (scale + math.sqrt(dimension) * tau) ** 2 / 2]
    if l1 is not None:
        check_positive("l1", l1)
        taxicab = l1 / (math.sqrt(shares) * sigma)
        bounds.append(order * (scale**2 + 2 * taxicab * tau + tau**2 * dimension) / 2)
    return min(bounds)


def skellam_rdp(order: int, *, l1: float, l2: float, variance: float) -> float:
    """Bound the Renyi divergence at a whole ``order`` >= 2 of a sum with Skellam noise of ``variance`` on each
    coordinate.

    ``a l2^2 / (2 v) + min(((2 a - 1) l2^2 + 6 l1) / (4 v^2), 3 l1 / (2 v))`` (Agarwal, Kairouz, Liu 2021, the bound for
    vectors). The survey (Fu et al. 2024) prints one sensitivity where the theorem has two.
    """
    check_order(order)
    if int(order) != order:
        raise ValueError(f"the Renyi order must be a whole number for Skellam noise, got {order}")
    for name, value in (("l1", l1), ("l2", l2), ("variance", variance)):
        check_positive(name, value)
    excess = ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2)
    return order * l2**2 / (2 * variance) + min(excess, 3 * l1 / (2 * variance))


def binomial_rdp(order: float, *, l1: float, l2: float, largest: float, trials: int, window: float) -> float:
    """Bound the Renyi divergence at ``order`` > 1 of a sum with noise Bin(``trials``, 1/2) - ``trials`` / 2 on each
    coordinate, given that no noise value exceeds ``window`` in absolute value; return infinity if ``window`` is too
    large for the bound.

    With v = trials / 4 and a = (trials + 1) / 2, the log ratio of the chances of z and z + 1 is 2 artanh((z + 1/2) / a)
    exactly; that is (z + 1/2) / (v + 1/4) but for a share rho = artanh(r) / r - 1 at most, r = (window + largest) / a.
    The linear part is that of a Gaussian, as fair coins are sub-Gaussian with their variance (Hoeffding 1963): it costs
    ``order l2^2 / (2 v + 1/2)``. The rest costs ``rho (window + largest) l1 / (v + 1/4)``, which vanishes on a fine
    grid.

    Args:
        l1, l2, largest: L1, L2 and L-infinity sensitivities of the integer vector.
        window: outcomes outside, which have probability at most ``binomial_tail``, count as leaked.
    """
    check_order(order)
    check_whole("trials", trials)
    for name, value in (("l1", l1), ("l2", l2), ("largest", largest), ("window", window)):
        check_positive(name, value)
    reach, variance = window + largest, (trials + 1) / 4
    # The bound needs artanh(ratio), which diverges at 1: too few coins for this window.
    ratio = reach / (2 * variance)
    if ratio >= 1:
        return math.inf
    bend = math.atanh(ratio) / ratio - 1
    return order * l2**2 / (2 * variance) + bend * reach * l1 / variance


def binomial_tail(*, trials: int, window: float, dimension: int) -> float:
    """Bound the probability that at least one of ``dimension`` centred binomial noise values exceeds ``window`` in
    absolute value (Hoeffding 1963).
    """
    return min(1.0, 2 * dimension * math.exp(-2 * window**2 / trials))


def binomial_epsilon(
    *, trials: int, scale: float, l1: float, l2: float, largest: float, dimension: int, delta: float
) -> float:
    """Compute the epsilon that Agarwal et al. (2018, Theorem 1) prove if each coordinate gets the noise ``scale`` *
    (Bin(``trials``, 1/2) - ``trials`` / 2).

    No claim above 1 may rest on it: on a fine grid it is the classic Gaussian formula, which is proved up to 1 and
    fails above 8.4 at delta 1e-5.

    Args:
        l1, l2, largest: L1, L2 and L-infinity sensitivities of the vector on the grid of step ``scale``.

    Raises:
        ValueError: outside the theorem's regime, trials / 4 >= max(23 ln(10 d / delta), 2 largest / scale).
    """
    check_delta(delta)
    check_whole("trials", trials)
    check_whole("dimension", dimension)
    for name, value in (("scale", scale), ("l1", l1), ("l2", l2), ("largest", largest)):
        check_positive(name, value)
    variance, least = trials / 4, binomial_least(largest / scale, dimension=dimension, delta=delta)
    if trials < least:
        raise ValueError(
            f"trials, the number of coin tosses, must be >= {least} for the theorem of binomial noise to hold, "
            f"got {trials}"
        )
    # The theorem's constants b, c and d for a fair coin.
    b, c, d = 1 / 3, math.sqrt(2) * 7 / 4, 2 / 3
    gauss = l2 * math.sqrt(2 * math.log(1.25 / delta)) / (scale * math.sqrt(variance))
    third = (l2 * c * math.sqrt(math.log(10 / delta)) + l1 * b) / (scale * variance * (1 - delta / 10))
    tail = 2 / 3 * math.log(1.25 / delta) + d * math.log(20 * dimension / delta) * math.log(10 / delta)
    return gauss + third + largest * tail / (scale * variance)


def binomial_least(largest: float, *, dimension: int, delta: float) -> int:
    """Return the smallest number of coin tosses for which Theorem 1 of Agarwal et al. (2018) holds, if one client
    changes each coordinate by at most ``largest`` grid steps.
    """
    return math.ceil(4 * max(23 * math.log(10 * dimension / delta), 2 * largest))


@lru_cache(maxsize=64)
def _distance(sigma: float, shares: int) -> float:
    """The distance of a sum of ``shares`` discrete Gaussians from a discrete Gaussian (Kairouz et al. 2021, Theorem 1's
    tau).
    """
    k = np.arange(1, shares, dtype=np.float64)
    return 10 * float(np.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)).sum())


def check_order(order: float) -> None:
    """Raise ValueError unless the Renyi ``order`` is finite and above 1."""
    if not 1 < order < math.inf:
        raise ValueError(f"the Renyi order must be > 1 and finite, got {order!r}")
