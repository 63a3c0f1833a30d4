"""One-run audit of published Gaussian noise: mean shift of included canaries over the deviation, a noncentral t.

Given the coins, the scores of m canaries are assumed independent and Gaussian with one variance, as projections on
orthogonal canaries are of a sum with Gaussian noise of a published law (of correlated noise, after whitening by its
public matrix). The variance is estimated, because noise that is too small moves no mean. The statistic is that of
``z_test`` with the coins in the place of independent runs, and exact under the assumption.

Only suites use it, where a law says so much of the scores. Scores of other shapes may move by more deviations than mu,
and a test of their shape does not always notice: of posteriors of a Gaussian release with mu 1.75, half of the bounds
from 1,000 canaries would lie above the truth. ``one_run_rates`` is for them.
"""

import math

import numpy as np
from scipy.special import nctdtr, nctdtrit
from scipy.stats import normaltest

from ..arrays import FloatArray
from ..binomial import check_delta, check_epsilon, check_level
from ..bisection import crossing
from ..curve import epsilon_from_mu, mu_from_epsilon
from ..evidence import CanaryScores
from ..measurement import GAUSSIAN_CANARIES, Measurement
from .z_test import effect_error, mu_from_effect, pooled_deviation

_CONTRADICTS = 1e-4
"""Probability below which Gaussian scores are contradicted."""
_FEWEST = 20
"""Canaries from which on the shape of their scores is tested, and a bound is stated."""


def gaussian_canaries(
    scores: CanaryScores, *, delta: float, alpha: float, epsilon: float | None = None, witness: str = ""
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` of a Gaussian release from canaries of one run.

    ``delta`` lies in (0, 1); the bound holds with probability 1 - ``alpha`` if scores are Gaussian.

    ``epsilon``: the claimed one, for ``effect_z`` and ``detectable``. A bound under this assumption refutes only claims
    that state a Gaussian curve. The bound is 0 for fewer than 20 canaries, fewer than two on either side, and scores
    that do not vary or are not Gaussian.

    Raises ValueError for delta, alpha or epsilon out of range.
    """
    check_level("alpha", alpha)
    check_delta(delta)
    check_epsilon(epsilon)
    if delta == 0:
        raise ValueError(
            "delta must be > 0 for the bound on a Gaussian release, got 0: mu-GDP implies no finite epsilon at delta 0"
        )
    within, out = scores.sides()
    claimed = None if epsilon is None else mu_from_epsilon(epsilon, delta)
    reason = _why_not(within, out)
    effect = 0.0 if reason else float(within.mean() - out.mean()) / pooled_deviation(within, out)
    mu = 0.0 if reason else mu_from_effect(effect, len(out), len(within), alpha=alpha, known=False)
    m = len(scores.values)
    return Measurement(
        estimator="one_run_gaussian",
        assumption=GAUSSIAN_CANARIES,
        alpha=alpha,
        n0=0,
        n1=0,
        delta=delta,
        epsilon_low=epsilon_from_mu(mu, delta),
        estimate=None if reason else epsilon_from_mu(max(0.0, effect), delta),
        ceiling=None,
        # Scores that bound nothing would not have shown a violation either.
        detectable=(
            None if epsilon is None or reason else detectable_epsilon(m, epsilon=epsilon, delta=delta, alpha=alpha)
        ),
        witness="; ".join(filter(None, (witness, reason))),
        setting=scores.setting,
        canaries=m,
        effect_z=None if claimed is None or reason else (effect - claimed) / effect_error(claimed, *_halves(m), False),
    )


def detectable_epsilon(canaries: int, *, epsilon: float, delta: float, alpha: float) -> float | None:
    """Return the smallest true epsilon of a Gaussian release, at ``delta``, that this number of canaries refutes with
    probability 0.9.

    None for fewer than 20.

    ``epsilon``: the claimed one, judged at ``alpha``.
    """
    if canaries < _FEWEST:
        return None
    claimed, freedom = mu_from_epsilon(epsilon, delta), canaries - 2
    out, within = _halves(canaries)
    error = math.sqrt(1 / out + 1 / within)
    least = float(nctdtrit(freedom, claimed / error, 1 - alpha))
    if not math.isfinite(least):
        return None
    return epsilon_from_mu(crossing(lambda mu: bool(nctdtr(freedom, mu / error, least) > 0.1), relative=1e-6)[1], delta)


def _halves(canaries: int) -> tuple[int, int]:
    """The canaries on either side that fair coins give on average."""
    return canaries // 2, canaries - canaries // 2


def _why_not(within: FloatArray, out: FloatArray) -> str:
    """Why these scores bound nothing; empty where they do."""
    if len(within) + len(out) < _FEWEST or min(len(within), len(out)) < 2:
        return (
            f"no bound: {len(within)} canaries were included and {len(out)} left out, and at least {_FEWEST} are "
            "needed in all"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        inner, outer = within - within.mean(), out - out.mean()
        spread = pooled_deviation(within, out)
    if not (math.isfinite(spread) and spread > 1e-9 * float(np.abs(np.concatenate([within, out])).max())):
        return "no bound, because the scores do not vary or are too large"
    # Also mirrored: bounded scores are skewed to the middle on both sides, which cancels in their union.
    both = (np.concatenate([inner, outer]), np.concatenate([-inner, outer]))
    probability = min(1.0, 2 * min(float(normaltest(one).pvalue) for one in both))
    if probability < _CONTRADICTS:
        return f"no bound, because the scores are not Gaussian (p-value {probability:.2g})"
    return ""
