"""Poisson-binomial mechanism: every client sends coins whose bias is its number (Chen, Ozgur, Kairouz 2022).

A client's row x of L2 norm 1 at most becomes a count of Bin(trials, 1/2 + theta x_j) a coordinate; the sum is released.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

from ...audit.arrays import FloatArray
from .conversion import renyi_budget
from .counts import CountLaw, binomial
from .discrete import check_order, check_whole

_MOST_BITS = 4000
_TINY = 1e-250
_LEAKED = 0.01
"""Share of delta for rounds in which fewer coins than counted on are fair."""
LARGEST_BIAS = 0.25


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
    check_order(order)
    check_whole("clients", clients)
    check_whole("trials", trials)
    check_bias(theta)
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


def row_rdp(order: float, *, trials: int, fair: float, theta: float) -> float:
    """Renyi divergence at ``order`` >= 2 of a whole row, of L2 norm 1 at most, against a row of zeros, both ways, among
    ``fair`` fair coins of others in every coordinate's sum: that of a Gaussian of their variance, or little more.

    Let y be the mean of the M = trials + fair coins as signs, eta = 2 theta |x_j| and mu^2 = eta^2 trials^2 / M. With
    the row zero all coins are fair. With the row there the ratio of chances is that of ``trials`` coins drawn from the
    M, prod_i (1 + eta y_i) with y_i in [-1, 1], as a hypergeometric number is a sum of independent coins (Vatutin,
    Mikhailov 1982); sum y_i = trials y and sum y_i^2 <= trials^2 / M + trials y^2.

    - Row against zeros: the ratio is convex in y, so spreading the bias evenly over all M coins costs no less (as
      Hoeffding 1956), and by the two-point inequality (Bonami 1970) that costs ``order mu^2 / 2``.
    - Zeros against row: with c = (-ln(1 - eta) - eta) / eta^2, log(1 + u) >= u - c u^2 leaves the moment of a
      quadratic in y, which is sub-Gaussian: ``c mu^2 + ((order - 1) mu^2 / 2 + c mu^2 / trials) / (1 - 2 b)`` with
      b = (order - 1) c mu^2 / trials. It is the larger one, and infinite where 2 b >= 1.

    Both grow with x_j^2 at most, so coordinates add up to what one of length 1 costs.
    """
    check_order(order)
    if order < 2:
        raise ValueError(f"order must be >= 2 for this bound, got {order}")
    check_whole("trials", trials)
    check_bias(theta)
    eta = 2 * theta
    mu2, curve = (eta * trials) ** 2 / (trials + fair), (-math.log1p(-eta) - eta) / eta**2
    bend = 2 * (order - 1) * curve * mu2 / trials
    if bend >= 1:
        return math.inf
    return curve * mu2 + ((order - 1) * mu2 / 2 + curve * mu2 / trials) / (1 - bend)


def fair_coins(coins: int, *, theta: float, nats: float) -> float:
    """How many of the others' ``coins`` are fair whatever their data are, but for a chance of exp(-``nats``).

    A coin of chance 1/2 + theta x is a fair one but for a share 2 theta, in which it tells of x. By Bernstein.
    """
    told = 2 * theta * coins
    reach = nats / 3 + math.sqrt(nats**2 / 9 + 2 * nats * told * (1 - 2 * theta))
    return max(0.0, coins - told - reach)


@lru_cache(maxsize=1024)
def largest_bias(*, clients: int, trials: int, epsilon: float, delta: float, rounds: int, dimension: int) -> float:
    """The largest theta, up to 1/4 and to 1e-6 of itself, at which sums of ``clients`` rows keep (epsilon, delta) over
    all rounds: of one client's row against zeros, whatever the others' rows are.

    Rounds of different numbers of clients may be composed: all keep the same part of the budget at the same order.
    """
    for name, value in (("clients", clients), ("rounds", rounds), ("dimension", dimension)):
        check_whole(name, value)
    budget, nats = renyi_budget(epsilon, (1 - _LEAKED) * delta), math.log(dimension * rounds / (_LEAKED * delta))

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
    """ValueError unless 0 < ``theta`` < 1/2."""
    if not 0 < theta < 0.5:
        raise ValueError(f"theta must be in (0, 1/2), got {theta}")


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
