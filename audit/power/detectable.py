"""Power of an audit before it runs: the smallest true epsilon that it would refute with 90 % probability.

Both routes test whether the joint point lies under a curve, the stated one or that of (epsilon, delta) alone. The
exact binomial sum runs over the false positives; for each count, the false negatives that still refute form an
interval from 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import bdtr, gammaln, xlog1py, xlogy
from scipy.stats import binom

from ..arrays import FloatArray
from ..binomial import upper_bound
from ..curve import Curve, GaussianCurve, ProfileCurve
from ..gaussian import epsilon_from_mu

# In mu or epsilon: at 60 an attack makes no error in any number of trials that can be run.
_LARGEST = 60.0


@dataclass(frozen=True, kw_only=True)
class _Design:
    """``weights``: (k,) the probability of each plausible count of false positives; ``allowed``: (k,) the largest
    count of false negatives that still refutes together with it, -1 where none does."""

    n1: int
    weights: FloatArray
    allowed: FloatArray

    def power(self, fnr: float) -> float:
        refuting = np.where(self.allowed < 0, 0.0, bdtr(np.maximum(self.allowed, 0), self.n1, fnr))
        return float(self.weights @ refuting)


# Cached, because the repeats of an audit often count the same errors and a search takes long.
@lru_cache(maxsize=1024)
def minimum_detectable_epsilon(
    *,
    n0: int,
    n1: int,
    alpha: float,
    delta: float,
    fpr: float,
    curve: Curve | None,
    epsilon: float | None,
    power: float = 0.9,
) -> float | None:
    """Return the smallest true epsilon at ``delta`` for which an audit of this size refutes the claim with probability
    ``power``.

    The route is ``curve`` where one is given, else the bound against ``epsilon``; None when both are None, or when
    nothing in reach (mu or epsilon of 60) would do. ``fpr``: expected false-positive rate, in (0, 1). The truth is
    taken to be a Gaussian mechanism, the attack optimal; at delta 0, where no Gaussian has a finite epsilon, the
    worst mechanism of pure epsilon.
    """
    refuted = _refuted_curve(curve, epsilon, delta)
    if refuted is None:
        return None
    design = _design(n0=n0, n1=n1, alpha=alpha, fpr=fpr, refuted=refuted)
    if delta == 0:
        return _smallest(lambda true: design.power(_pure(true, fpr)), power)
    mu = _smallest(lambda true: design.power(_gaussian(true, fpr)), power)
    return None if mu is None else epsilon_from_mu(mu, delta)


def power_at(
    fpr: float,
    fnr: float,
    *,
    n0: int,
    n1: int,
    alpha: float,
    delta: float,
    curve: Curve | None,
    epsilon: float | None,
) -> float:
    """Return the probability (power) that an audit of this size refutes the claim, given the attack's true error rates.

    ``fpr`` in (0, 1), ``fnr`` in [0, 1]; route and arguments as in ``minimum_detectable_epsilon``. Raises ValueError
    when a rate is out of range or there is neither curve nor epsilon.
    """
    if not 0 <= fnr <= 1:
        raise ValueError(f"fnr must lie in [0, 1], got {fnr}")
    refuted = _refuted_curve(curve, epsilon, delta)
    if refuted is None:
        raise ValueError("the power depends on a claim to refute: give its curve or its epsilon, got neither")
    return _design(n0=n0, n1=n1, alpha=alpha, fpr=fpr, refuted=refuted).power(fnr)


def _refuted_curve(curve: Curve | None, epsilon: float | None, delta: float) -> Curve | None:
    """The curve under which a joint point refutes; None where nothing was claimed."""
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")
    if curve is not None or epsilon is None:
        return curve
    # A bound exceeds epsilon exactly when its joint point lies under this curve, so one test serves both routes.
    return ProfileCurve((epsilon,), (delta,), (delta,))


def _design(*, n0: int, n1: int, alpha: float, fpr: float, refuted: Curve) -> _Design:
    if not 0 < fpr < 1:
        raise ValueError(f"fpr must lie in (0, 1), got {fpr}")
    # Nine standard deviations and 40 counts: what is left out weighs less than 1e-15.
    reach = 9 * math.sqrt(n0 * fpr * (1 - fpr)) + 40
    counts = np.arange(max(0, math.floor(n0 * fpr - reach)), min(n0, math.ceil(n0 * fpr + reach)) + 1)
    forbidden = refuted.fnr(upper_bound(counts, n0, alpha / 2))
    # U(j) < f exactly when P[Bin(n1, f) <= j] < alpha / 2: ppf gives the first j for which that fails.
    allowed = np.asarray(binom.ppf(alpha / 2, n1, forbidden), dtype=np.float64) - 1
    log_weights = (
        gammaln(n0 + 1)
        - gammaln(counts + 1)
        - gammaln(n0 - counts + 1)
        + xlogy(counts, fpr)
        + xlog1py(n0 - counts, -fpr)
    )
    return _Design(n1=n1, weights=np.exp(log_weights), allowed=allowed)


def _gaussian(mu: float, fpr: float) -> float:
    return float(GaussianCurve(mu).fnr(fpr))


def _pure(epsilon: float, fpr: float) -> float:
    return float(ProfileCurve((epsilon,), (0.0,), (0.0,)).fnr(fpr))


def _smallest(power_of: Callable[[float], float], power: float) -> float | None:
    """The smallest true leak that reaches ``power``, to nine digits."""
    # Bisection finds it, because power grows with the leak.
    low, high = 0.0, _LARGEST
    if power_of(high) < power:
        return None
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(middle) >= power else (middle, high)
    return high
