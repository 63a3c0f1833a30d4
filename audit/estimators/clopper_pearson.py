"""The bound that assumes nothing of the mechanism: Clopper-Pearson on both error rates (Nasr et al. 2021, section 3).

``eps_low = max{0, ln((1 - b - delta) / a), ln((1 - a - delta) / b)}`` with a, b the upper bounds on the false-positive
and false-negative rate, each at alpha / 2.
"""

from ..binomial import ErrorCounts, privacy_loss
from ..curve import Curve
from ..evidence import MembershipScores, Setting
from ..measurement import INDEPENDENT_TRIALS, Measurement
from ..power.threshold import ThresholdPolicy
from .joint_point import JointPointRule, measure_counts, measure_scores


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
    """Bound epsilon at ``delta`` in [0, 1) from below, right with probability 1 - ``alpha``.

    ``curve``: the signed trade-off curve, if there is one; it is tested by the same joint point. ``epsilon``: the
    claim's, from which ``detectable`` is read where no curve is signed. Raises ValueError for trials that are not
    independent: shared noise raises false violations to 61-75 %.
    """
    return measure_scores(
        scores,
        _reading(delta),
        delta=delta,
        alpha=alpha,
        threshold=threshold,
        curve=curve,
        epsilon=epsilon,
        witness=witness,
    )


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
    """The same bound, at ``counts.alpha``, where trials were only counted: 1e6 of them stream in constant memory.

    ``threshold_policy`` says how the event was fixed before they were drawn. ValueError as for ``clopper_pearson``.
    """
    return measure_counts(
        [counts],
        _reading(delta),
        setting=setting,
        delta=delta,
        alpha=counts.alpha,
        threshold_policy=threshold_policy,
        curve=curve,
        epsilon=epsilon,
        witness=witness,
    )


def _reading(delta: float) -> JointPointRule:
    return JointPointRule(
        estimator="clopper_pearson",
        assumption=INDEPENDENT_TRIALS,
        epsilon=lambda fpr, fnr: max(0.0, float(privacy_loss(fpr, fnr, delta))),
    )
