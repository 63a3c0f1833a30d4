"""Gaussian-DP lower bound on epsilon: tight for a Gaussian mechanism, invalid for any other (Nasr et al. 2023).

``mu_low = max(0, Phi^-1(1 - a) - Phi^-1(b))`` from the joint point, then the epsilon of that mu. It refutes "mu-GDP",
not "(epsilon, delta)-DP of any mechanism". Never ``abs(mu)``: a published audit that used it reported 8.15 for
null scores.
"""

import math

from scipy.special import ndtri

from ..curve import Curve, GaussianCurve, epsilon_from_mu, mu_from_epsilon
from ..evidence import MembershipScores
from ..measurement import GAUSSIAN_MECHANISM, Measurement
from ..threshold import ThresholdPolicy
from .joint_point import JointPointRule


def mu_from_rates(fpr: float, fnr: float) -> float:
    """Return the mu of the Gaussian trade-off curve that passes through the given pair of error rates.

    It is ``max(0, Phi^-1(1 - fpr) - Phi^-1(fnr))`` for rates in [0, 1], and NaN where one rate is 0 and the other 1.
    """
    # By symmetry Phi^-1(1 - fpr) = -Phi^-1(fpr); the right side keeps the digits of a small fpr.
    mu = -float(ndtri(fpr)) - float(ndtri(fnr))
    return mu if math.isnan(mu) else max(0.0, mu)


def gaussian_dp(
    scores: MembershipScores,
    *,
    delta: float,
    alpha: float,
    threshold: ThresholdPolicy,
    curve: Curve | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon for a mechanism whose trade-off curve is Gaussian.

    Arguments and errors are those of ``clopper_pearson``.

    ``delta`` in (0, 1): a Gaussian mechanism has no finite epsilon at delta 0.
    """
    # An infinite bound at delta 0 would refute every claim of pure DP.
    if delta == 0:
        raise ValueError(
            "delta must be > 0 for the Gaussian-DP bound, got 0: mu-GDP implies no finite epsilon at delta 0"
        )
    rule = JointPointRule(
        estimator="gaussian_dp",
        assumption=GAUSSIAN_MECHANISM,
        implied=lambda fpr, fnr: _epsilon(mu_from_rates(fpr, fnr), delta),
        refuted=None if epsilon is None else GaussianCurve(mu_from_epsilon(epsilon, delta)),
        delta=delta,
        alpha=alpha,
        curve=curve,
        epsilon=epsilon,
        witness=witness,
    )
    return rule.of_scores(scores, threshold)


def _epsilon(mu: float, delta: float) -> float:
    return mu if math.isnan(mu) else epsilon_from_mu(mu, delta)
