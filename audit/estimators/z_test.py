"""z-test on the difference of mean scores with and without the canary: most powerful, for Gaussian releases only.

The bound is conditional: the scores must be Gaussian with the same variance with and without the canary. Where the
standard deviation is known, the shift divided by it is normal. Where it is not, the shift divided by the pooled one is
a noncentral t, which also detects halved noise. An unknown deviation is never replaced by the **claimed** one: a halved
sigma moves no mean, so such a test cannot detect it.
"""

import math

import numpy as np
from scipy.special import nctdtr, ndtri

from ..arrays import FloatArray
from ..binomial import check_positive
from ..bisection import crossing
from ..curve import epsilon_from_mu, mu_from_epsilon
from ..evidence import MembershipScores
from ..measurement import GAUSSIAN_SCORES, KNOWN_GAUSSIAN, Measurement
from .joint_point import check_independent_trials


def mu_from_effect(effect: float, n0: int, n1: int, *, alpha: float, known: bool) -> float:
    """Return the one-sided lower bound on mu (mean shift over standard deviation) from an observed ``effect``.

    The bound is >= 0.

    ``known``: whether the effect was divided by the true deviation, or by the pooled one (n0 + n1 >= 3).
    """
    error = math.sqrt(1 / n0 + 1 / n1)
    if known:
        return max(0.0, effect + float(ndtri(alpha)) * error)
    freedom, observed = n0 + n1 - 2, effect / error

    def refuted(mu: float) -> bool:
        """Return whether the observed effect refutes this mu: so large an effect has probability below alpha under
        mu-GDP.
        """
        return bool(nctdtr(freedom, mu / error, observed) > 1 - alpha)

    # The effect itself is never refuted at alpha below 1/2, so it closes the bracket.
    return crossing(refuted, high=effect, relative=1e-10)[0]


def z_test(
    scores: MembershipScores,
    *,
    delta: float,
    alpha: float,
    deviation: float | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon of a Gaussian release at ``delta``, assuming that scores are Gaussian.

    ``delta`` lies in (0, 1).

    ``deviation``: the scores' true standard deviation, where the law of the noise is known for certain; None to
    estimate it. ``epsilon``: the claimed one, for ``effect_z``. A bound under this assumption refutes only claims that
    state a Gaussian curve. Raises ValueError for a deviation that is not > 0; without a deviation, also for fewer than
    two trials per arm and for scores that do not vary.
    """
    check_independent_trials(scores.setting, "z_test", delta, alpha)
    if delta == 0:
        raise ValueError("delta must be > 0 for the z-test, got 0: mu-GDP implies no finite epsilon at delta 0")
    n0, n1 = len(scores.nonmember), len(scores.member)
    spread = pooled_deviation(scores.member, scores.nonmember) if deviation is None else deviation
    check_positive("deviation (of the scores)", spread)
    known = deviation is not None
    with np.errstate(over="ignore", invalid="ignore"):
        effect = float(scores.member.mean() - scores.nonmember.mean()) / spread
    if not math.isfinite(effect):
        raise ValueError(
            f"the difference of the mean scores, divided by the standard deviation {spread}, must be finite, got "
            f"{effect}"
        )
    mu = mu_from_effect(effect, n0, n1, alpha=alpha, known=known)
    claimed = None if epsilon is None else mu_from_epsilon(epsilon, delta)
    return Measurement(
        estimator="z_test",
        assumption=GAUSSIAN_SCORES if deviation is None else KNOWN_GAUSSIAN,
        alpha=alpha,
        n0=n0,
        n1=n1,
        delta=delta,
        epsilon_low=epsilon_from_mu(mu, delta),
        estimate=epsilon_from_mu(max(0.0, effect), delta),
        # Without a counted error there is no largest epsilon: a larger shift always proves more.
        ceiling=None,
        detectable=None if claimed is None else epsilon_from_mu(_detectable_mu(claimed, n0, n1, alpha, known), delta),
        witness=witness,
        setting=scores.setting,
        effect_z=None if claimed is None else (effect - claimed) / effect_error(claimed, n0, n1, known),
    )


def pooled_deviation(member: FloatArray, nonmember: FloatArray) -> float:
    """Return the pooled standard deviation of the scores (n1,) and (n0,) of both arms, at least two of each."""
    n0, n1 = len(nonmember), len(member)
    if min(n0, n1) < 2:
        raise ValueError(
            f"z_test needs at least two trials without and two with the canary, got {n0} without and {n1} with it"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (n1 - 1) * member.var(ddof=1) + (n0 - 1) * nonmember.var(ddof=1)
    return math.sqrt(float(squares) / (n0 + n1 - 2))


def effect_error(mu: float, n0: int, n1: int, known: bool) -> float:
    """Return the standard error of the effect size at ``mu`` (Hedges 1981, large samples); ``known``: whether the
    deviation is known.
    """
    return math.sqrt(1 / n0 + 1 / n1 + (0.0 if known else mu**2 / (2 * (n0 + n1))))


def _detectable_mu(claimed: float, n0: int, n1: int, alpha: float, known: bool, power: float = 0.9) -> float:
    """The mu that is detected with this power, by the normal approximation."""
    # The test rejects by the error at the claim, while the effect varies with the error at the truth.
    needed = claimed - float(ndtri(alpha)) * effect_error(claimed, n0, n1, known)
    # A fixed point, because the error at the truth depends on the mu that is sought.
    mu = needed
    for _ in range(50):
        mu = needed + float(ndtri(power)) * effect_error(mu, n0, n1, known)
    return mu
