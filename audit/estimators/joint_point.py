"""Simultaneous upper bounds on an attack's two error rates with the lower bound on epsilon that they imply, and the
best of several such bounds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from ..binomial import ErrorCounts, check_delta, check_level, upper_bound
from ..curve import Curve
from ..evidence import Design, MembershipScores, Setting
from ..measurement import Kind, Measurement
from ..power import minimum_detectable_epsilon
from ..threshold import ThresholdPolicy


@dataclass(frozen=True, kw_only=True)
class JointPointRule:
    """The rule by which one estimator converts a false-positive rate and a false-negative rate to an epsilon.

    ``implied``: (fpr, fnr) -> the epsilon that they imply, possibly infinite, NaN where they imply none; ``refuted``:
    the curve under which a point lies when its epsilon exceeds the claimed one, None for the curve of (epsilon, delta).
    ``curve``, ``epsilon``: the claimed ones, where there are any; ``alpha``: of all thresholds together.
    """

    estimator: str
    assumption: str
    implied: Callable[[float, float], float]
    refuted: Curve | None = None
    delta: float
    alpha: float
    curve: Curve | None
    epsilon: float | None
    witness: str

    def of_scores(self, scores: MembershipScores, threshold: ThresholdPolicy) -> Measurement:
        """Count the errors of membership scores at one or more thresholds, and convert the counts to a lower bound on
        epsilon as ``of_counts`` does.
        """
        check_independent_trials(scores.setting, self.estimator, self.delta, self.alpha)
        points = threshold.counts(scores.member, scores.nonmember, delta=self.delta, alpha=self.alpha)
        return self.of_counts(points, setting=scores.setting, threshold_policy=str(threshold))

    def of_counts(self, points: Sequence[ErrorCounts], *, setting: Setting, threshold_policy: str) -> Measurement:
        """Convert an attack's error counts at one or more thresholds to a lower bound on epsilon.

        The thresholds were fixed before counting, and their alphas sum to ``alpha``. One whose error rates lie under
        the stated trade-off curve is reported if there is one, else the one with the largest lower bound on epsilon.
        """
        check_independent_trials(setting, self.estimator, self.delta, self.alpha)
        # A point under the curve comes first: it refutes the claim, however small its epsilon is.
        best = max(points, key=lambda point: (bool(self._below(point)), self.implied(point.fpr_high, point.fnr_high)))
        # A rate of zero errors implies an infinite epsilon, which is no estimate.
        shown = self.implied(best.false_positives / best.n0, best.false_negatives / best.n1)
        # At the share of alpha of this threshold: with several thresholds the limit is lower than for a single one.
        fewest_fpr, fewest_fnr = upper_bound(0, [best.n0, best.n1], best.alpha / 2)
        return measured_counts(
            best,
            delta=self.delta,
            refuted=self.curve or self.refuted,
            epsilon=self.epsilon,
            estimator=self.estimator,
            assumption=self.assumption,
            alpha=self.alpha,
            threshold_policy=threshold_policy,
            fpr_high=best.fpr_high,
            fnr_high=best.fnr_high,
            epsilon_low=self.implied(best.fpr_high, best.fnr_high),
            estimate=shown if math.isfinite(shown) else None,
            ceiling=self.implied(float(fewest_fpr), float(fewest_fnr)),
            witness=self.witness,
            setting=setting,
            below_curve=self._below(best),
            comparisons=len(points),
        )

    def _below(self, point: ErrorCounts) -> bool | None:
        """Sound by the union bound: the true rates lie below the joint point, and f is decreasing."""
        return None if self.curve is None else bool(point.fnr_high < self.curve.fnr(point.fpr_high))


def measured_counts(
    point: ErrorCounts, *, delta: float, refuted: Curve | None = None, epsilon: float | None = None, **own: Any
) -> Measurement:
    """Build a measurement from error counts, with the minimum detectable epsilon at their false-positive rate.

    ``refuted``: the curve under which a point refutes the claim, None for that of (``epsilon``, ``delta``); without
    both nothing was claimed, and nothing is detectable. ``own``: what the estimator found, and its other fields.
    """
    # Half a count more, because the rate behind a count of zero is not 0.
    rate = (point.false_positives + 0.5) / (point.n0 + 1)
    detectable = minimum_detectable_epsilon(
        n0=point.n0, n1=point.n1, alpha=point.alpha, delta=delta, fpr=rate, curve=refuted, epsilon=epsilon
    )
    counts = {field.name: getattr(point, field.name) for field in fields(point)}
    return Measurement(**(counts | {"delta": delta, "detectable": detectable} | own))


def check_independent_trials(setting: Setting, estimator: str, delta: float, alpha: float) -> None:
    """Raise ValueError unless the audit's trials are independent, ``delta`` lies in [0, 1) and ``alpha`` in (0, 1)."""
    check_level("alpha", alpha)
    check_delta(delta)
    if setting.design is not Design.INDEPENDENT:
        raise ValueError(
            f"{estimator} needs independent trials, because its theorem needs binomial error counts, got trials of "
            f"dependence type (design) {setting.design.value}: give one score of each of many runs "
            "(MembershipScores.one_per_run)"
        )


Test = TypeVar("Test")


def best_of(tests: Sequence[Test], alpha: float, measure: Callable[[Test, float], Measurement]) -> Measurement:
    """Return the best bound of several tests; ``measure(test, share)`` measures each test at an equal share of
    alpha.
    """
    return best_bound([measure(test, alpha / len(tests)) for test in tests])


def best_bound(measurements: Sequence[Measurement]) -> Measurement:
    """Return the measurement that refutes the claim most clearly, among several measurements whose error probabilities
    sum to the alpha of the whole test (Bonferroni).

    That is one whose error rates lie under the stated trade-off curve if there is one, else the one with the largest
    lower bound on epsilon; its ``alpha`` becomes the sum of all shares.

    It holds with probability 1 - alpha by the union bound, whatever the dependence, provided that the list was
    fixed before any score was seen. Raises ValueError for an empty list, for measurements of different settings or
    deltas, and for one that is not a bound.
    """
    if not measurements:
        raise ValueError("best_bound needs at least one measurement, got none")
    if len({(measurement.setting, measurement.delta) for measurement in measurements}) != 1:
        raise ValueError("best_bound needs measurements of one setting and one delta, got several")
    for measurement in measurements:
        if measurement.kind is not Kind.BOUND:
            raise ValueError(
                f"best_bound accepts bounds only, got {measurement.estimator} of kind {measurement.kind.value}"
            )
    # Under the curve first, because only that refutes the stated curve; then by epsilon.
    best = max(measurements, key=lambda measurement: (bool(measurement.below_curve), measurement.epsilon_low))
    # fsum: k shares of alpha / k must add up to alpha, and not to a number just above it.
    alpha, comparisons = math.fsum(m.alpha for m in measurements), sum(m.comparisons for m in measurements)
    policy = best.threshold_policy if comparisons == 1 else f"bonferroni(k={comparisons})"
    return replace(best, alpha=alpha, comparisons=comparisons, threshold_policy=policy)
