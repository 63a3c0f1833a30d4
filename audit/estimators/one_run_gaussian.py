"""One-run audit of a Gaussian release: mean shift of included canaries over the deviation, a noncentral t.

Given the coins, the scores of m canaries are assumed independent and Gaussian with one variance, as projections on
orthogonal canaries are of a sum with Gaussian noise of a published law (of correlated noise, after whitening by its
public matrix). The variance is estimated, because noise that is too small moves no mean. The statistic is that of
``z_test`` with the coins in the place of independent runs: exact under the assumption, and near exact for any scores
whose coins are fair, because the coins randomise the comparison.

Scores of other shapes say nothing: a mu-GDP mechanism may move the mean of a score by up to ``sqrt(e^(mu^2) - 1)``
deviations. Where Anscombe and Glynn's test of the residuals' kurtosis or D'Agostino's of their skewness contradicts
Gaussian scores, the bound is 0.
"""

import math

import numpy as np
from scipy.stats import normaltest

from ..arrays import FloatArray
from ..binomial import check_delta, check_epsilon, check_level
from ..curve import epsilon_from_mu, mu_from_epsilon
from ..evidence import CanaryScores
from ..measurement import GAUSSIAN_CANARIES, Measurement
from .z_test import detectable_mu, effect_error, mu_from_effect, pooled_deviation

_CONTRADICTS = 1e-4
"""Probability below which Gaussian scores are contradicted."""
_FEWEST = 20
"""Canaries from which on the shape of their scores is tested, and a bound is stated."""


def one_run_gaussian(
    scores: CanaryScores, *, delta: float, alpha: float, epsilon: float | None = None, witness: str = ""
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` of a Gaussian release from canaries of one run.

    ``delta`` lies in (0, 1); the bound holds with probability 1 - ``alpha`` if scores are Gaussian (the file's text).

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
        detectable=None if epsilon is None else detectable_epsilon(m, epsilon=epsilon, delta=delta, alpha=alpha),
        witness="; ".join(filter(None, (witness, reason))),
        setting=scores.setting,
        canaries=m,
        effect_z=None if claimed is None or reason else (effect - claimed) / effect_error(claimed, *_halves(m), False),
    )


def detectable_epsilon(canaries: int, *, epsilon: float, delta: float, alpha: float) -> float | None:
    """Return the true epsilon, at ``delta``, of a Gaussian release that so many canaries refute with probability .9.

    None for fewer than 20.

    ``epsilon``: the claimed one, judged at ``alpha``.
    """
    if canaries < _FEWEST:
        return None
    return epsilon_from_mu(detectable_mu(mu_from_epsilon(epsilon, delta), *_halves(canaries), alpha, False), delta)


def _halves(canaries: int) -> tuple[int, int]:
    """The canaries on either side that fair coins give on average."""
    return canaries // 2, canaries - canaries // 2


def _why_not(within: FloatArray, out: FloatArray) -> str:
    """Why these scores bound nothing; empty where they do."""
    if len(within) + len(out) < _FEWEST or min(len(within), len(out)) < 2:
        return f"no bound from {len(within)} included canaries and {len(out)} others: at least {_FEWEST} in all"
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = np.concatenate([side - side.mean() for side in (within, out)])
        spread = pooled_deviation(within, out)
    if not (math.isfinite(spread) and spread > 1e-9 * float(np.abs(np.concatenate([within, out])).max())):
        return "no bound from scores that do not vary, or are too large"
    probability = float(normaltest(residuals).pvalue)
    if probability < _CONTRADICTS:
        return f"no bound, because the scores are not Gaussian (probability {probability:.2g})"
    return ""
