"""Account for the integer noise of secure sums, and find the noise with which a sum satisfies a privacy budget.

Bound Renyi divergences of secure sums that carry discrete Gaussian, Skellam or binomial noise.

Sensitivities are in units of the integer grid, after scaling **and rounding**. Each guarantee is about the modular or
plain sum that the server obtains.

Bound the privacy of sums of coin tosses whose biases encode clients' numbers (Chen, Ozgur, Kairouz 2022).

A client's row x of L2 norm at most 1 becomes a count of Bin(trials, 1/2 + theta x_j) per coordinate; the sum is
released.

Find the standard deviation of integer noise with which a secure sum satisfies a privacy budget.

All lengths are in steps of the grid: ``norm`` is the L2 sensitivity, a bound on an integer row of ``dimension``
coordinates, whose L1 norm is therefore at most ``min(sqrt(dimension) norm, norm^2)``. All rounds together satisfy
(epsilon, delta), by Renyi divergences; results are too large by at most a factor 1 + 1e-4.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ...fl.fields import check_positive
from ..defense import check_budget, check_delta, check_whole
from .accountant import epsilon_at_best_order, epsilon_from_rdp, epsilon_from_zcdp, renyi_budget


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


# Share of delta for rounds in which fewer coins are fair than assumed.
_COINS_LEAK = 0.01
LARGEST_BIAS = 0.25


def row_rdp(order: float, *, trials: int, fair: float, theta: float) -> float:
    """Bound the Renyi divergence at ``order`` >= 2, in both directions, between two secure sums: one with a client's
    vector of L2 norm at most 1, one with a vector of zeros in its place.

    Every coordinate's sum contains ``fair`` fair coins of other clients. The divergence is that of a Gaussian of their
    variance, or little more.

    Let y be the mean of the M = trials + fair coins as signs, eta = 2 theta |x_j| and mu^2 = eta^2 trials^2 / M. With
    the row zero all coins are fair. With the row there the ratio of chances is that of ``trials`` coins drawn from the
    M, prod_i (1 + eta y_i) with y_i in [-1, 1], as a hypergeometric number is a sum of independent coins (Vatutin,
    Mikhailov 1982); sum y_i = trials y and sum y_i^2 <= trials^2 / M + trials y^2.

    - Row against zeros: the ratio is convex in y, so spreading the bias evenly over all M coins costs no less (as
      Hoeffding 1956), and by the two-point inequality (Bonami 1970) that costs ``order mu^2 / 2``.
    - Zeros against row: with c = (-ln(1 - eta) - eta) / eta^2, log(1 + u) >= u - c u^2 leaves the moment of a quadratic
      in y, which is sub-Gaussian: ``c mu^2 + ((order - 1) mu^2 / 2 + c mu^2 / trials) / (1 - 2 b)`` with b = (order -
      1) c mu^2 / trials. It is the larger one, and infinite where 2 b >= 1.

    Both grow with x_j^2 at most, so all coordinates together cost no more than one coordinate of length 1.
    """
    check_order(order)
    if order < 2:
        raise ValueError(f"the Renyi order must be >= 2 for the Poisson-binomial bound, got {order}")
    check_whole("trials", trials)
    check_bias(theta)
    eta = 2 * theta
    mu2, curve = (eta * trials) ** 2 / (trials + fair), (-math.log1p(-eta) - eta) / eta**2
    bend = 2 * (order - 1) * curve * mu2 / trials
    if bend >= 1:
        return math.inf
    return curve * mu2 + ((order - 1) * mu2 / 2 + curve * mu2 / trials) / (1 - bend)


def fair_coins(coins: int, *, theta: float, nats: float) -> float:
    """Return a lower bound on how many of the other clients' ``coins`` are fair, so that their outcomes are independent
    of the data; the bound fails with probability at most exp(-``nats``).

    A coin of probability 1/2 + theta x is fair except for a share 2 theta, in which it depends on x. By Bernstein's
    inequality.
    """
    biased = 2 * theta * coins
    reach = nats / 3 + math.sqrt(nats**2 / 9 + 2 * nats * biased * (1 - 2 * theta))
    return max(0.0, coins - biased - reach)


@lru_cache(maxsize=1024)
def largest_bias(*, clients: int, trials: int, epsilon: float, delta: float, rounds: int, dimension: int) -> float:
    """Return the largest bias theta of a coin (at most 1/4, with relative error 1e-6) at which sums over ``clients``
    clients satisfy (epsilon, delta) over all rounds.

    The guarantee is of one client's row against zeros, for any rows of the others. Rounds with different numbers of
    clients compose, because all of them use the same part of the budget at the same order.
    """
    for name, value in (("clients", clients), ("rounds", rounds), ("dimension", dimension)):
        check_whole(name, value)
    budget, nats = (
        renyi_budget(epsilon, (1 - _COINS_LEAK) * delta),
        math.log(dimension * rounds / (_COINS_LEAK * delta)),
    )

    def keeps(theta: float) -> bool:
        fair = fair_coins((clients - 1) * trials, theta=theta, nats=nats)
        return row_rdp(budget.order, trials=trials, fair=fair, theta=theta) <= budget.rdp / rounds

    if keeps(LARGEST_BIAS):
        return LARGEST_BIAS
    low, high = 0.0, LARGEST_BIAS
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def check_bias(theta: float) -> None:
    """Raise ValueError unless the bias ``theta`` of a coin is in (0, 1/2)."""
    if not 0 < theta < 0.5:
        raise ValueError(f"theta, the bias of a coin, must be in (0, 1/2), got {theta}")


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
