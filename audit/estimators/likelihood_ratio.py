"""Lower bound on epsilon from the exact log-likelihood ratio of a Gaussian or Laplace release (worst-case adversary).

That adversary knows everything except whether the canary took part. It reduces each round's release to one number,
``projection = <unit canary, release minus the known rest> / sensitivity``.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlog1py, xlogy

from ..arrays import FloatArray
from ..binomial import check_positive
from ..curve import Curve
from ..evidence import MembershipScores
from ..measurement import Measurement
from ..threshold import ThresholdPolicy
from .clopper_pearson import clopper_pearson
from .z_test import effect_error, pooled_deviation


def subsampled_gaussian(
    projection: ArrayLike, *, sigma: ArrayLike, rate: ArrayLike = 1.0, steps: int = 1
) -> FloatArray:
    """Return the log-likelihood ratio (with over without the canary) of Poisson-subsampled Gaussian releases.

    ``projection`` is the release reduced to one number (see this module); the result has the same shape.

    ``sigma``: noise standard deviation of one step in units of the sensitivity, > 0; ``rate``: Poisson sampling rate of
    the canary in [0, 1]; each is one number, or one per projection. The release is the sum of ``steps`` steps tau. In:
    the mixture over j ~ Binomial(tau, rate) of N(j, tau sigma^2); out: N(0, tau sigma^2). For one step it is
    ``ln(1 - q + q exp((2 o - 1) / (2 sigma^2)))`` (Mironov, Talwar, Zhang 2019, section 3). It is summed in logarithms,
    and so is finite wherever the exponent is. Raises ValueError for arguments out of range.
    """
    _check_law(sigma, rate, steps)
    seen = np.asarray(projection, dtype=np.float64)
    ratio: FloatArray | None = None
    for j in range(steps + 1):
        choices = gammaln(steps + 1) - gammaln(j + 1) - gammaln(steps - j + 1)
        # xlogy and xlog1py give 0 for 0 ln 0, so that rates 0 and 1 need no case of their own.
        log_weight = choices + xlogy(j, rate) + xlog1py(steps - j, -np.asarray(rate))
        if not np.isfinite(log_weight).any():
            continue
        # An exponent past 1e308 becomes infinite, which MembershipScores refuses with a clear error.
        with np.errstate(over="ignore"):
            exponent = (2 * j * seen - j * j) / (2 * steps * np.square(sigma))
        term = np.where(np.isfinite(log_weight), log_weight + exponent, -np.inf)
        ratio = term if ratio is None else np.logaddexp(ratio, term)
    return np.full(seen.shape, -np.inf) if ratio is None else np.asarray(ratio, dtype=np.float64)


def laplace(release: ArrayLike, canary: ArrayLike, *, scale: float) -> FloatArray:
    """Return the log-likelihood ratio (with over without the canary) of releases with Laplace noise.

    Every coordinate has its own noise. An array ``(..., d)`` of releases becomes an array ``(...)``.

    ``release``: (..., d) minus the known rest; ``canary``: (d,). The ratio is ``sum_j (|o_j| - |o_j - c_j|) / scale``
    and lies within +-|canary|_1 / scale, which is the epsilon. Raises ValueError unless scale > 0.
    """
    check_positive("scale (of the Laplace noise)", scale)
    seen, shift = np.asarray(release, dtype=np.float64), np.asarray(canary, dtype=np.float64)
    return np.asarray(np.sum(np.abs(seen) - np.abs(seen - shift), axis=-1) / scale, dtype=np.float64)


def likelihood_ratio(
    scores: MembershipScores,
    *,
    delta: float,
    alpha: float,
    threshold: ThresholdPolicy,
    sigma: float,
    rate: float,
    steps: int,
    rounds: int,
    curve: Curve | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a Clopper-Pearson lower bound on epsilon from scores that are log-likelihood ratios.

    The z-score of the effect size is stated too.

    The bound assumes nothing about the mechanism. ``sigma``, ``rate``, ``steps``, ``rounds``: the claimed law;
    ``rounds`` must be that of the setting. ``effect_z`` is given at rate 1, where the scores are Gaussian, else None.
    Other arguments and errors as ``clopper_pearson``.
    """
    _check_law(sigma, rate, steps)
    if rounds != scores.setting.rounds:
        raise ValueError(
            f"rounds must equal the number of rounds in the evidence, {scores.setting.rounds}, got {rounds}"
        )
    bound = clopper_pearson(
        scores, delta=delta, alpha=alpha, threshold=threshold, curve=curve, epsilon=epsilon, witness=witness
    )
    # At other rates the score with the canary is a mixture, whose effect size has no known standard error.
    z = effect_z(scores.member, scores.nonmember, math.sqrt(rounds * steps) / sigma) if rate == 1 else None
    return dataclasses.replace(bound, estimator="likelihood_ratio", effect_z=z)


def effect_z(member: FloatArray, nonmember: FloatArray, mu: float) -> float | None:
    """Return by how many standard errors the scores' effect size (mean shift over standard deviation) exceeds the
    claimed ``mu``.

    Large values contradict "at most mu-GDP".

    The effect size is the shift of the means over the pooled standard deviation **of the scores**: a test that
    divides by the claimed one cannot detect a halved sigma, which moves no mean. Its variance is taken at the claim,
    ``1/n0 + 1/n1 + mu^2 / (2 (n0 + n1))`` (Hedges 1981, large samples). It is valid if the scores of both arms are
    Gaussian with the same variance. None for fewer than two scores per arm, for scores that do not vary, and for scores
    whose squares are past 1e308.
    """
    n0, n1 = len(nonmember), len(member)
    if min(n0, n1) < 2:
        return None
    pooled = pooled_deviation(member, nonmember)
    if not 0 < pooled < math.inf:
        return None
    effect = (member.mean() - nonmember.mean()) / pooled
    return float((effect - mu) / effect_error(mu, n0, n1, known=False))


def _check_law(sigma: ArrayLike, rate: ArrayLike, steps: int) -> None:
    if not (np.isfinite(sigma).all() and (np.asarray(sigma) > 0).all()):
        raise ValueError(f"sigma (noise divided by sensitivity) must be > 0 and finite, got {sigma!r}")
    if not ((np.asarray(rate) >= 0) & (np.asarray(rate) <= 1)).all():
        raise ValueError(f"rate (of Poisson sampling) must lie in [0, 1], got {rate!r}")
    if steps < 1:
        raise ValueError(f"steps (noisy steps per round) must be >= 1, got {steps}")
