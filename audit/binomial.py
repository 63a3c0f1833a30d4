"""Bounds on error rates from error counts (Clopper and Pearson 1934), and the lower bounds on epsilon that follow."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv

from .arrays import FloatArray


def upper_bound(k: ArrayLike, n: ArrayLike, alpha: float) -> FloatArray:
    """Return the one-sided Clopper-Pearson upper bound on an error rate, from ``k`` errors in ``n`` trials.

    The bound is ``BetaInv(1 - alpha; k + 1, n - k)``, and 1 at ``k = n``.

    Assumes ``k`` errors in ``n`` independent trials. ``k``, ``n``: whole numbers of any broadcastable shapes; ``alpha``
    in (0, 1): the probability that the true rate lies above the bound. Raises ValueError unless n >= 1, 0 <= k <= n.
    """
    check_level("alpha", alpha)
    errors, trials = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    if not np.all(trials >= 1):
        raise ValueError(f"the number of trials n must be >= 1, got {n!r}")
    if not np.all((errors >= 0) & (errors <= trials)):
        raise ValueError(f"the number of errors must lie in 0..n for n trials, got {k!r} of {n!r}")
    # The inverse of the complement keeps an alpha of 1e-17, where 1 - alpha would round to 1.
    bound = betainccinv(errors + 1, np.maximum(trials - errors, 0.5), alpha)
    # Where the inverse does not converge (alpha below 1e-290), only the trivial bound is known to hold.
    return np.asarray(np.where((errors == trials) | np.isnan(bound), 1.0, bound), dtype=np.float64)


def privacy_loss(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> FloatArray:
    """Return the smallest epsilon at which (epsilon, ``delta``)-DP allows an attack with the error rates ``fpr`` and
    ``fnr``.

    It is ``max{ln((1 - fnr - delta) / fpr), ln((1 - fpr - delta) / fnr)}``.

    ``fpr``, ``fnr``: rates in [0, 1], broadcastable shapes. An event and its complement have the same pair of rates, so
    one pair tests both directions of (epsilon, delta)-DP. The value is not clipped: it may be negative, and it is
    infinite where a rate is 0 (Kairouz, Oh, Viswanath 2015, theorem 2.1).
    """
    check_delta(delta)
    false_in, false_out = np.broadcast_arrays(np.asarray(fpr, dtype=np.float64), np.asarray(fnr, dtype=np.float64))
    with np.errstate(divide="ignore"):
        true_in, true_out = np.maximum(0, 1 - false_out - delta), np.maximum(0, 1 - false_in - delta)
        gains, costs = np.log([true_in, true_out]), np.log([false_in, false_out])
    # A ratio of 0 to 0 is no evidence: it must not become NaN, which would win every maximum.
    loss = np.subtract(gains, costs, out=np.full_like(gains, -np.inf), where=np.isfinite(gains))
    return np.asarray(loss.max(axis=0), dtype=np.float64)


def epsilon_low(fp: int, fn: int, n0: int, n1: int, delta: float, alpha: float) -> float:
    """Return a lower bound on a mechanism's epsilon at ``delta`` from an attack's error counts; the bound's confidence
    is 1 - ``alpha``.

    The bound is never below 0.

    ``fp`` false positives in ``n0`` trials without the canary, ``fn`` false negatives in ``n1`` trials with it, counted
    at a threshold that was fixed before. Each error rate is bounded at ``alpha / 2``.
    """
    loss = privacy_loss(upper_bound(fp, n0, alpha / 2), upper_bound(fn, n1, alpha / 2), delta)
    return max(0.0, float(loss))


def largest_certifiable_epsilon(n0: int, n1: int, delta: float, alpha: float) -> float:
    """Return the largest lower bound on epsilon that ``n0`` trials without the canary and ``n1`` trials with it can
    prove.

    It is the bound from an attack that makes no error in ``n0`` trials without the canary and ``n1`` trials with it.
    """
    return epsilon_low(0, 0, n0, n1, delta, alpha)


@dataclass(frozen=True, kw_only=True)
class ErrorCounts:
    """An attack's numbers of false positives and false negatives at a score threshold that does not depend on these
    trials.

    ``n0``, ``n1``: trials without and with the canary; ``alpha``: the error probability that both bounds share;
    ``threshold``: None for an event that is no threshold on a score.
    """

    threshold: float | None
    false_positives: int
    false_negatives: int
    n0: int
    n1: int
    alpha: float

    @property
    def fpr_high(self) -> float:
        """An upper bound on the attack's false-positive rate; the true rate exceeds it with probability at most alpha /
        2.
        """
        return float(upper_bound(self.false_positives, self.n0, self.alpha / 2))

    @property
    def fnr_high(self) -> float:
        """An upper bound on the attack's false-negative rate; the true rate exceeds it with probability at most alpha /
        2.

        Together with ``fpr_high`` it holds at alpha.
        """
        return float(upper_bound(self.false_negatives, self.n1, self.alpha / 2))


def check_number(name: str, value: object) -> None:
    """Raise ValueError unless ``value`` is a number; True and False do not count as numbers."""
    try:
        math.isfinite(value)  # type: ignore[arg-type]
        # A truth value counts as 0 or 1 in Python, and `epsilon=True` is a mistake.
        number = not isinstance(value, bool | np.bool_)
    except TypeError:
        number = False
    if not number:
        raise ValueError(f"{name} must be a number, got {value!r}")


def check_level(name: str, level: float) -> None:
    """Raise ValueError unless the probability ``level``, such as alpha or the power, lies strictly between 0 and 1."""
    check_number(name, level)
    if not 0 < level < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {level}")


def check_delta(delta: float) -> None:
    """Raise ValueError unless delta lies in [0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta}")


def check_epsilon(epsilon: float | None) -> None:
    """Raise ValueError for a claimed epsilon that is negative or infinite; None, which stands for no claim, is
    accepted.
    """
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a number > 0 and finite."""
    check_number(name, value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be > 0 and finite, got {value}")
