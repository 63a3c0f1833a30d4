"""Bound the Renyi divergence of GNMax by what the votes were: where teachers agree, a label reveals almost nothing.

The bound depends on the votes, which are private. Whatever is computed here is **not** a claim and must not be
published as it is (``smooth_sensitivity`` releases it with noise).
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp

from ...audit.arrays import FloatArray
from ...fl.fields import check_positive
from .conversion import epsilon_from_rdp
from .discrete import check_order


def log_error(counts: ArrayLike, sigma: float) -> FloatArray:
    """Bound the log probability that GNMax releases another label than the one with most votes (Papernot et al. 2018,
    Proposition 7): ``ln sum_i erfc(gap_i / (2 sigma)) / 2``, at most 0.

    ``counts``: (..., classes) votes; the result is (...,). Two counts with noise of deviation sigma differ by noise of
    deviation sqrt(2) sigma, and the union bound adds the labels.
    """
    check_positive("sigma", sigma)
    ordered = np.sort(np.asarray(counts, dtype=np.float64), axis=-1)
    gaps = ordered[..., -1:] - ordered[..., :-1]
    return np.asarray(np.minimum(logsumexp(log_ndtr(-gaps / (math.sqrt(2) * sigma)), axis=-1), 0.0))


def gnmax_rdp(log_q: ArrayLike, *, sigma: float, order: float) -> FloatArray:
    """Bound the Renyi divergence of one GNMax label at ``order`` > 1 by the log probability ``log_q`` that it is not
    the most voted one, ``(...,)`` (Papernot et al. 2018, Theorem 6 with the orders of their Proposition 10).

    ``ln((1 - q) A^(order - 1) + q B^(order - 1)) / (order - 1)`` with ``A = (1 - q) / (1 - (q e^e2)^((m2 - 1) /
    m2))``, ``B = e^e1 / q^(1 / (m1 - 1))``, ``m2 = sigma sqrt(ln 1/q)``, ``m1 = m2 + 1``, ``e = m / sigma^2``. Where
    the theorem does not apply, and never above, it is the data-independent ``order / sigma^2``.
    """
    check_positive("sigma", sigma)
    check_order(order)
    logs = np.asarray(log_q, dtype=np.float64)
    general = order / sigma**2
    high = sigma * np.sqrt(-logs)
    # m1 > order, m2 > 1, and q small enough for A to be positive and the bound to grow with q.
    safe = (high > 1) & (high + 1 > order)
    m2 = np.where(safe, high, max(2.0, order))
    q = np.where(safe, logs, -((m2 / sigma) ** 2))
    m1, e1, e2 = m2 + 1, (m2 + 1) / sigma**2, m2 / sigma**2
    safe &= q <= (m2 - 1) * e2 - m2 * (np.log(m1 / (m1 - 1)) + np.log(m2 / (m2 - 1)))
    safe &= q + e2 < 0
    with np.errstate(invalid="ignore", divide="ignore"):
        right = _log1mexp(q)
        log_a = right - _log1mexp((q + e2) * (1 - 1 / m2))
        log_b = e1 - q / (m1 - 1)
        bound = np.logaddexp(right + (order - 1) * log_a, q + (order - 1) * log_b) / (order - 1)
    return np.where(safe, np.clip(bound, 0.0, general), general)


def data_dependent_rdp(counts: ArrayLike, *, sigma: float, order: float) -> float:
    """Bound the Renyi divergence at ``order`` of all labels of the queries with votes ``counts (queries, classes)``."""
    return float(gnmax_rdp(log_error(counts, sigma), sigma=sigma, order=order).sum())


def data_dependent_epsilon(counts: ArrayLike, *, sigma: float, delta: float) -> float:
    """Compute epsilon at ``delta`` that holds for these votes alone, ``counts (queries, classes)``.

    It is **not** a privacy claim: it depends on the private votes and reveals them, and for other votes it is larger.
    """
    logs = log_error(counts, sigma)
    return epsilon_from_rdp(lambda order: float(gnmax_rdp(logs, sigma=sigma, order=order).sum()), delta)


def _log1mexp(x: FloatArray) -> FloatArray:
    """``ln(1 - e^x)`` for x < 0, with all digits near 0 and far below."""
    return np.asarray(np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x))))
