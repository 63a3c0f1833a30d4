"""The exact log-likelihood ratio of a Gaussian or Laplace release, for an adversary who knows all but one bit.

Numbers only: ``projection`` is ``<unit canary, release minus the known rest> / sensitivity``, one per round.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlog1py, xlogy

from ..arrays import FloatArray
from ..curve import Curve
from ..evidence import MembershipScores
from ..measurement import Measurement
from ..power.threshold import ThresholdPolicy
from .clopper_pearson import clopper_pearson


def subsampled_gaussian(projection: ArrayLike, *, sigma: ArrayLike, rate: float = 1.0, steps: int = 1) -> FloatArray:
    """Log-likelihood ratio, canary in over out, of one round's release; same shape as ``projection``.

    ``sigma``: noise standard deviation of one step in units of the sensitivity, > 0, one for all or one a projection;
    ``rate``: Poisson sampling rate of the canary in [0, 1]; the release is the sum of ``steps`` steps tau. In: the
    mixture over j ~ Binomial(tau, rate) of N(j, tau sigma^2); out: N(0, tau sigma^2). For one step it is
    ``ln(1 - q + q exp((2 o - 1) / (2 sigma^2)))`` (Mironov, Talwar, Zhang 2019, section 3). Summed by logarithms:
    finite wherever the exponent is. ValueError outside.
    """
    _check_law(sigma, rate, steps)
    seen = np.asarray(projection, dtype=np.float64)
    taken = np.arange(steps + 1)
    choices = gammaln(steps + 1) - gammaln(taken + 1) - gammaln(steps - taken + 1)
    log_weights = choices + xlogy(taken, rate) + xlog1py(steps - taken, -rate)
    ratio = np.full(seen.shape, -np.inf)
    for j in taken[np.isfinite(log_weights)]:
        # Past 1e308 it is infinite, which the evidence refuses.
        with np.errstate(over="ignore"):
            exponent = (2 * j * seen - j * j) / (2 * steps * np.square(sigma))
        ratio = np.logaddexp(ratio, log_weights[j] + exponent)
    return ratio


def laplace(release: ArrayLike, canary: ArrayLike, *, scale: float) -> FloatArray:
    """Log-likelihood ratio of a release with Laplace noise on each coordinate: ``(..., d)`` -> ``(...)``.

    ``release`` minus the known rest, ``canary``: (d,); ``sum_j (|o_j| - |o_j - c_j|) / scale``, which lies within
    +-|canary|_1 / scale: that is the epsilon. ValueError unless scale > 0.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be > 0 and finite, got {scale}")
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
    """Clopper-Pearson on log-likelihood-ratio scores, which assumes nothing, with the effect size's z beside it.

    ``sigma``, ``rate``, ``steps``, ``rounds``: the claimed law; ``rounds`` must be the setting's. ``effect_z`` only for
    rate 1, where that law is Gaussian, and None elsewhere. Arguments and errors otherwise as ``clopper_pearson``.
    """
    _check_law(sigma, rate, steps)
    if rounds != scores.setting.rounds:
        raise ValueError(f"rounds must be those of the evidence, {scores.setting.rounds}, got {rounds}")
    bound = clopper_pearson(
        scores, delta=delta, alpha=alpha, threshold=threshold, curve=curve, epsilon=epsilon, witness=witness
    )
    z = effect_z(scores.member, scores.nonmember, math.sqrt(rounds * steps) / sigma) if rate == 1 else None
    return dataclasses.replace(bound, estimator="likelihood_ratio", effect_z=z)


def effect_z(member: FloatArray, nonmember: FloatArray, mu: float) -> float | None:
    """Standard score of the effect size over the ``mu`` of a claim; large values speak against "at most mu-GDP".

    The effect size is the shift of the means over the pooled standard deviation **of the scores**: dividing by the
    claimed one is blind to a halved sigma, which moves no mean. Its standard error is taken at the claim,
    ``1/n0 + 1/n1 + mu^2 / (2 (n0 + n1))`` (Hedges 1981, large samples). Holds if both worlds are Gaussian of one
    variance. None for fewer than two scores a side, scores that do not vary, or whose squares are past 1e308.
    """
    n0, n1 = len(nonmember), len(member)
    if min(n0, n1) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        pooled = ((n1 - 1) * member.var(ddof=1) + (n0 - 1) * nonmember.var(ddof=1)) / (n0 + n1 - 2)
    if not 0 < pooled < math.inf:
        return None
    effect = (member.mean() - nonmember.mean()) / math.sqrt(pooled)
    return float((effect - mu) / math.sqrt(1 / n0 + 1 / n1 + mu**2 / (2 * (n0 + n1))))


def _check_law(sigma: ArrayLike, rate: float, steps: int) -> None:
    if not (np.isfinite(sigma).all() and (np.asarray(sigma) > 0).all()):
        raise ValueError(f"sigma must be > 0 and finite, got {sigma!r}")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie in [0, 1], got {rate}")
    if steps < 1:
        raise ValueError(f"steps must be >= 1, got {steps}")
