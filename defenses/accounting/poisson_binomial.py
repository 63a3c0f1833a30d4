"""Poisson-binomial mechanism: every client sends coins whose bias is its number (Chen, Ozgur, Kairouz 2022)."""

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

from ...audit.binomial import FloatArray
from .counts import CountLaw, binomial
from .discrete import check_order, check_whole

_MOST_BITS = 4000
_TINY = 1e-250


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
