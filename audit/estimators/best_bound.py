"""Chooses the best of several pre-registered lower bounds on epsilon, each at its share of alpha (Bonferroni)."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ..measurement import Kind, Measurement


def best_bound(measurements: Sequence[Measurement]) -> Measurement:
    """Return the measurement that refutes the claim most clearly, among several whose error probabilities alpha sum to
    that of the whole test (Bonferroni).

    That is one whose error rates lie under the stated trade-off curve if there is one, else the one with the largest
    lower bound on epsilon; its ``alpha`` becomes the sum of all shares.

    It holds with probability 1 - alpha by the union bound, whatever the dependence, provided that the list was
    fixed before any score was seen. Raises ValueError for an empty list, for measurements of different settings or
    deltas, and for one that is not a bound.
    """
    if not measurements:
        raise ValueError("best_bound needs at least one measurement, got none")
    if len({(measurement.setting, measurement.delta) for measurement in measurements}) != 1:
        raise ValueError("best_bound needs measurements that all have the same setting and delta, got different ones")
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
