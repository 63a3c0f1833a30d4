"""One-run audit by the error rates of independent canaries at a threshold that other canaries chose.

Given the coins, the scores of canaries are assumed independent, so that errors at a fixed threshold are binomial, or
less spread where canaries differ (Hoeffding 1956). Both counts are tested together against a Gaussian curve: the bound
is the largest mu at which so large a difference ``Phi^-1(hits / n1) - Phi^-1(false alarms / n0)`` has probability below
alpha, whatever the false-positive rate is. The test is exact and unconditional; the rate is searched in a confidence
interval whose error is paid for (Berger and Boos 1994). A published audit of this form takes the best of all thresholds
without paying for the choice, and is above 0 on 11 % of null scores at level .05.

``one_run`` and ``one_run_fdp`` need no independence, and prove less: a mechanism that fails for all canaries together
with some probability is judged rightly by them alone.
"""

from functools import lru_cache

import numpy as np
from scipy.special import bdtrc, ndtr, ndtri
from scipy.stats import binom, norm

from ..arrays import FloatArray
from ..binomial import check_delta, check_epsilon, check_level, upper_bound
from ..bisection import crossing
from ..curve import epsilon_from_mu, mu_from_epsilon
from ..evidence import CanaryScores
from ..measurement import INDEPENDENT_GAUSSIAN, Measurement
from ..threshold import FixedThreshold, SplitThreshold, ThresholdPolicy

_PAID = 0.05
"""Share of alpha that pays for the interval of the false-positive rate."""
_RATES = 65
"""Rates in the interval that are tried; between them the probability changes by less than its rounding."""


def mu_from_counts(alarms: int, n0: int, hits: int, n1: int, *, alpha: float) -> float:
    """Return a lower bound on mu from the false alarms among ``n0`` excluded canaries and the hits among ``n1``
    included ones.

    It is >= 0, and 0 where no mu is refuted.

    Raises ValueError unless 0 <= alarms <= n0, 0 <= hits <= n1, both numbers are >= 1 and alpha is in (0, 1).
    """
    check_level("alpha", alpha)
    if min(n0, n1) < 1 or not (0 <= alarms <= n0 and 0 <= hits <= n1):
        raise ValueError(
            f"counts must lie in 0 <= alarms <= n0 and 0 <= hits <= n1 with n0, n1 >= 1, got {alarms} of {n0} and "
            f"{hits} of {n1}"
        )
    paid = _PAID * alpha
    ends = 1 - upper_bound(n0 - alarms, n0, paid / 2), upper_bound(alarms, n0, paid / 2)
    low, high = ndtri(np.clip(ends, 1e-12, 1 - 1e-12))
    places = np.linspace(low, high, _RATES)[:, np.newaxis]
    masses = binom.pmf(np.arange(n0 + 1), n0, ndtr(places))
    out, within = _scores(n0), _scores(n1)
    # Counts that hardly occur are left out, and count against a refutation.
    kept = masses.max(0) > 1e-13
    masses, rest = masses[:, kept], 1 - masses[:, kept].sum(1)
    # For each number of false alarms: the fewest hits with as large a difference as was seen.
    needed = np.searchsorted(within, within[hits] - out[alarms] + out[kept] - 1e-12)

    def refuted(mu: float) -> bool:
        tails = np.where(needed == 0, 1.0, bdtrc(np.maximum(needed - 1.0, 0.0), n1, ndtr(places + mu)))
        return bool(((masses * tails).sum(1) + rest).max() < alpha - paid)

    return crossing(refuted, relative=1e-4)[0]


@lru_cache(maxsize=16)
def _scores(n: int) -> FloatArray:
    """The normal scores of all numbers of canaries above the threshold, of ``n``."""
    return np.asarray(ndtri((np.arange(n + 1) + 0.5) / (n + 1)), dtype=np.float64)


def one_run_rates(
    scores: CanaryScores,
    *,
    delta: float,
    alpha: float,
    threshold: ThresholdPolicy,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` of a Gaussian mechanism from error rates of one run's canaries.

    ``delta`` lies in (0, 1); the bound holds with probability 1 - ``alpha`` if scores are independent given the coins.

    Args:
        threshold: fixed before, or a split: the middle between both medians of a tenth of the canaries, of which the
            others are counted.
        epsilon: the claimed one, for the detectable epsilon.

    Raises:
        ValueError: for delta 0, another policy, a side without canaries, and levels out of range.
    """
    check_delta(delta)
    check_epsilon(epsilon)
    if delta == 0:
        raise ValueError("delta must be > 0 for one_run_rates, got 0: mu-GDP implies no finite epsilon at delta 0")
    canaries = len(scores.values)
    if isinstance(threshold, SplitThreshold):
        scores, threshold = _of_a_tenth(scores, threshold.seed)
    if not isinstance(threshold, FixedThreshold):
        raise ValueError(
            f"one_run_rates needs one threshold, fixed in advance or learned on split-off canaries, got {threshold}"
        )
    within, out = scores.sides()
    if not len(within) or not len(out):
        raise ValueError(
            f"one_run_rates needs included canaries and left-out canaries, got {len(within)} included and "
            f"{len(out)} left out"
        )
    (errors,) = threshold.counts(within, out, delta=delta, alpha=alpha)
    n0, n1, alarms, hits = errors.n0, errors.n1, errors.false_positives, errors.n1 - errors.false_negatives
    return Measurement(
        estimator="one_run_rates",
        assumption=INDEPENDENT_GAUSSIAN,
        alpha=alpha,
        n0=0,
        n1=0,
        delta=delta,
        threshold_policy="threshold fixed before the counted scores were seen",
        threshold=errors.threshold,
        epsilon_low=epsilon_from_mu(mu_from_counts(alarms, n0, hits, n1, alpha=alpha), delta),
        estimate=None,
        ceiling=epsilon_from_mu(mu_from_counts(0, n0, n1, n1, alpha=alpha), delta),
        detectable=None if epsilon is None else _detectable(epsilon, delta, n0, n1, alpha),
        witness=f"{witness}; {alarms} of {n0} false alarms and {hits} of {n1} hits".removeprefix("; "),
        setting=scores.setting,
        canaries=canaries,
        made=n0 + n1,
        right=n0 - alarms + hits,
    )


def _of_a_tenth(scores: CanaryScores, seed: int) -> tuple[CanaryScores, FixedThreshold]:
    """The scores of nine tenths of the canaries, and the middle between both medians of the others."""
    m = len(scores.values)
    # In an order of their own first: that in which canaries are given must not matter.
    order = np.lexsort((scores.included, scores.values))[np.random.default_rng(seed).permutation(m)]
    first, kept = order[: max(1, m // 10)], order[max(1, m // 10) :]
    taken = scores.included[first]
    sides = [scores.values[first[taken == side]] for side in (True, False)]
    # Halved before they are added: large scores would overflow.
    cut = sum(float(np.median(side)) / sum(map(bool, map(len, sides))) for side in sides if len(side))
    counted = kept if len(kept) else order
    return CanaryScores(scores.values[counted], scores.included[counted], scores.setting), FixedThreshold(cut)


def _detectable(epsilon: float, delta: float, n0: int, n1: int, alpha: float) -> float | None:
    """The epsilon of a Gaussian mechanism that is refuted with probability .9, at the middle threshold, by the normal
    approximation; None where no errors at all would not refute the claim.
    """
    claimed, limit = mu_from_epsilon(epsilon, delta), mu_from_counts(0, n0, n1, n1, alpha=alpha)
    mus = np.linspace(claimed, limit, 1001) if limit > claimed else np.zeros(0)
    rates = ndtr(mus / 2)
    errors = np.sqrt(rates * (1 - rates) * (1 / n0 + 1 / n1)) / norm.pdf(mus / 2)
    found = np.flatnonzero(mus - claimed >= float(ndtri(1 - alpha) + ndtri(0.9)) * errors)
    return epsilon_from_mu(float(mus[found[0]]), delta) if len(found) else None
