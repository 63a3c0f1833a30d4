"""Exact bounds on error rates, from error counts (Clopper and Pearson 1934), and the epsilon that they prove."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv

from .arrays import FloatArray


def upper_bound(k: ArrayLike, n: ArrayLike, alpha: float) -> FloatArray:
    """One-sided Clopper-Pearson upper bound ``BetaInv(1 - alpha; k + 1, n - k)`` on a rate, 1 at ``k = n``.

    ``k`` errors in ``n`` independent trials, any broadcastable shapes of whole numbers; ``alpha`` in (0, 1) is the
    chance that the rate lies above. Raises ValueError unless n >= 1, 0 <= k <= n.
    """
    check_level("alpha", alpha)
    errors, trials = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    if not np.all(trials >= 1):
        raise ValueError(f"n must be >= 1, got {n!r}")
    if not np.all((errors >= 0) & (errors <= trials)):
        raise ValueError(f"errors must lie in 0..n, got {k!r} of {n!r}")
    # The complement's inverse keeps an alpha of 1e-17, which 1 - alpha would swallow.
    bound = betainccinv(errors + 1, np.maximum(trials - errors, 0.5), alpha)
    # Where the inverse does not converge (alpha below 1e-290), only the trivial bound is known to hold.
    return np.asarray(np.where((errors == trials) | np.isnan(bound), 1.0, bound), dtype=np.float64)


def privacy_loss(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> FloatArray:
    """``max{ln((1 - fnr - delta) / fpr), ln((1 - fpr - delta) / fnr)}``: the epsilon that the two error rates show.

    Rates in [0, 1], broadcastable. Both directions come free, the event and its complement being one. Not clipped:
    it may be negative, and is infinite where a rate is 0 (Kairouz, Oh, Viswanath 2015, theorem 2.1).
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta}")
    false_in, false_out = np.broadcast_arrays(np.asarray(fpr, dtype=np.float64), np.asarray(fnr, dtype=np.float64))
    with np.errstate(divide="ignore"):
        true_in, true_out = np.maximum(0, 1 - false_out - delta), np.maximum(0, 1 - false_in - delta)
        gains, costs = np.log([true_in, true_out]), np.log([false_in, false_out])
    # 0/0 shows nothing.
    loss = np.subtract(gains, costs, out=np.full_like(gains, -np.inf), where=np.isfinite(gains))
    return np.asarray(loss.max(axis=0), dtype=np.float64)


def epsilon_low(fp: int, fn: int, n0: int, n1: int, delta: float, alpha: float) -> float:
    """The lower bound on epsilon, right with probability 1 - alpha: ``alpha / 2`` for each error rate; never below 0.

    ``fp`` false positives in ``n0`` trials without the canary, ``fn`` false negatives in ``n1`` with it, counted at a
    threshold that was fixed before.
    """
    loss = privacy_loss(upper_bound(fp, n0, alpha / 2), upper_bound(fn, n1, alpha / 2), delta)
    return max(0.0, float(loss))


def largest_certifiable_epsilon(n0: int, n1: int, delta: float, alpha: float) -> float:
    """What an attack without an error could have shown with so many trials."""
    return epsilon_low(0, 0, n0, n1, delta, alpha)


@dataclass(frozen=True, kw_only=True)
class ErrorCounts:
    """Errors at one threshold on trials that did not choose it, and the share ``alpha`` that may be spent on them."""

    threshold: float
    false_positives: int
    false_negatives: int
    n0: int
    n1: int
    alpha: float

    @property
    def fpr_high(self) -> float:
        """Upper bound on the false-positive rate at alpha / 2."""
        return float(upper_bound(self.false_positives, self.n0, self.alpha / 2))

    @property
    def fnr_high(self) -> float:
        """Upper bound on the false-negative rate at alpha / 2: with ``fpr_high`` a joint statement at alpha."""
        return float(upper_bound(self.false_negatives, self.n1, self.alpha / 2))


def check_level(name: str, level: float) -> None:
    """ValueError unless ``level`` lies in (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {level}")
