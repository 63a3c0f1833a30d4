"""Clopper-Pearson bound on epsilon from both error rates, valid whatever the mechanism (Nasr et al. 2021, section 3).

``eps_low = max{0, ln((1 - b - delta) / a), ln((1 - a - delta) / b)}`` with a, b the upper bounds on the false-positive
and false-negative rate, each at alpha / 2.
"""

from typing import Any

from ..binomial import ErrorCounts, privacy_loss
from ..curve import Curve
from ..evidence import MembershipScores, Setting
from ..measurement import INDEPENDENT_TRIALS, Measurement
from ..threshold import ThresholdPolicy
from .joint_point import JointPointRule


def clopper_pearson(
    scores: MembershipScores,
    *,
    delta: float,
    alpha: float,
    threshold: ThresholdPolicy,
    curve: Curve | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` from membership scores (Clopper-Pearson).

    ``delta`` lies in [0, 1); the bound holds with probability 1 - ``alpha``.

    Assumes independent trials and nothing about the mechanism. ``curve``: the stated trade-off curve, if there is one;
    the same joint point tests it. ``epsilon``: the claimed one, from which ``detectable`` is computed where no curve is
    stated. Raises ValueError for trials that are not independent: with shared noise 61 to 75 % of the bounds are wrong.
    """
    rule = _rule(delta=delta, alpha=alpha, curve=curve, epsilon=epsilon, witness=witness)
    return rule.of_scores(scores, threshold)


def clopper_pearson_of_counts(
    counts: ErrorCounts,
    *,
    setting: Setting,
    delta: float,
    threshold_policy: str,
    curve: Curve | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute the Clopper-Pearson lower bound on epsilon from error counts instead of scores.

    The bound holds at ``counts.alpha``. Counts allow 1e6 trials to stream in constant memory.

    ``threshold_policy`` states how the event was fixed before the trials were drawn. Raises
    ValueError as ``clopper_pearson``.
    """
    rule = _rule(delta=delta, alpha=counts.alpha, curve=curve, epsilon=epsilon, witness=witness)
    return rule.of_counts([counts], setting=setting, threshold_policy=threshold_policy)


def _rule(*, delta: float, **stated: Any) -> JointPointRule:
    return JointPointRule(
        estimator="clopper_pearson",
        assumption=INDEPENDENT_TRIALS,
        # Clipped at 0, because a negative bound holds for every mechanism and proves nothing.
        implied=lambda fpr, fnr: max(0.0, float(privacy_loss(fpr, fnr, delta))),
        delta=delta,
        **stated,
    )
