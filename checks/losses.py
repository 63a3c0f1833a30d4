"""Scale the privacy losses of an event, to state from which violation a test that counts it would refute a claim."""

import math
from bisect import bisect_left
from collections.abc import Callable

from scipy.stats import beta, binom

from ..audit.binomial import upper_bound

MISSED = 0.1
"""Probability with which a violation may be missed that counts as detectable."""
_CAUTION = 0.05
"""Level of the bounds on rates that were seen."""
_FACTORS = tuple(1.05**number for number in range(50))
"""Factors of the privacy losses that are tried."""


def cautious_rates(within: int, out: int, n: int) -> tuple[float, float]:
    """Return rates with and without the unit that tell the two apart less than counts of ``n`` runs of each did."""
    low = float(beta.ppf(_CAUTION, within, n - within + 1)) if within else 0.0
    return low, float(upper_bound(out, n, _CAUTION))


def smallest_factor(
    p: float, q: float, refutes: Callable[[float, float], bool], *, below: float = math.inf
) -> float | None:
    """Return the smallest factor of the privacy losses of an event of rates p and q at which a test refutes; None where
    no factor in reach does, or where p is not larger than q.

    The losses are ln(p / q) and ln((1 - p) / (1 - q)). With r and t for these two ratios, the rates of which the losses
    are c times as large are q' = (1 - t^c) / (r^c - t^c) and p' = r^c q'.

    Args:
        refutes: whether the test refutes the claim with probability 0.9 at rates p' and q'; the larger the losses, the
            rather it does.
        below: only smaller factors are of interest.
    """
    if not 0 < q < p < 1:
        return None
    gain, loss = math.log(p / q), math.log((1 - p) / (1 - q))

    def at(factor: float) -> bool:
        low = -math.expm1(factor * loss) / (math.exp(factor * gain) - math.exp(factor * loss))
        return refutes(min(1.0, math.exp(factor * gain) * low), low)

    tried = _FACTORS[: bisect_left(_FACTORS, below)]
    # Most events show little: the largest factor alone rules them out.
    if not tried or not at(tried[-1]):
        return None
    return tried[bisect_left(tried, True, key=at)]


def likely_counts(p: float, q: float, n: int) -> tuple[int, int]:
    """Return counts of ``n`` runs with and without the unit that are reached or surpassed with probability 0.9."""
    return int(binom.ppf(MISSED / 2, n, p)), int(binom.ppf(1 - MISSED / 2, n, q))
