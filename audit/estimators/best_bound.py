"""Best of several bounds, registered before the scores: each at its share of alpha, the most telling reported
(Bonferroni).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from ..measurement import Kind, Measurement


def best_bound(measurements: Sequence[Measurement]) -> Measurement:
    """One under the signed curve if there is any, else the largest bound; ``alpha`` is the sum of all shares.

    Right with probability 1 - alpha by the union bound, whatever the dependence between them, if the list was fixed
    before any of its scores was seen. Raises ValueError for an empty list, for measurements of different settings or
    deltas, and for one that is not a bound.
    """
    if not measurements:
        raise ValueError("best_bound needs at least one measurement, got none")
    if len({(measurement.setting, measurement.delta) for measurement in measurements}) != 1:
        raise ValueError("best_bound needs measurements of one setting at one delta")
    for measurement in measurements:
        if measurement.kind is not Kind.BOUND:
            raise ValueError(f"best_bound chooses among bounds, got {measurement.estimator}, {measurement.kind.value}")
    best = max(measurements, key=lambda measurement: (bool(measurement.below_curve), measurement.epsilon_low))
    alpha, comparisons = math.fsum(m.alpha for m in measurements), sum(m.comparisons for m in measurements)
    policy = best.threshold_policy if comparisons == 1 else f"bonferroni(k={comparisons})"
    return replace(best, alpha=alpha, comparisons=comparisons, threshold_policy=policy)
