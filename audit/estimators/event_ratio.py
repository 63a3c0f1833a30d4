"""Lower bound on epsilon from how often one event occurs on each of two inputs, by an exact test of the ratio.

``p1 <= e^epsilon p0 + delta`` is tested by the contrast ``hits_in - weight * hits_out`` of two independent binomial
counts. The unknown rate p0 is bounded first (Berger and Boos 1994), and the p-value is the largest over that interval.
Two separate bounds (``clopper_pearson``) lose more where both rates are far from 0, and less where one is near 0.
"""

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import bdtr, bdtrc, ndtri

from ..arrays import FloatArray
from ..binomial import ErrorCounts, check_positive, largest_certifiable_epsilon, upper_bound
from ..bisection import crossing
from ..curve import Tangent
from ..evidence import Setting
from ..measurement import INDEPENDENT_TRIALS, Measurement
from .joint_point import check_independent_trials, measured_counts

# A hundredth of alpha bounds the unknown rate; it shortens the interval at almost no cost.
_SHARE = 0.01
# Finer parts bring the bound closer to that of the exact sum, and take longer.
_PARTS, _BLOCKS, _REACH = 160, 240, 8.0
_STEPS, _STEP = 40, 0.02
_LOSS = 1.05
"""What the exact test loses to its normal approximation: the part of alpha that bounds the rate, and finite parts."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The rule of a ratio test, fixed before the counted trials. ``weight`` multiplies the hits on the first input;
    with ``complement``, the test counts the complement of the event and exchanges the two inputs.
    """

    weight: float
    complement: bool = False

    def __post_init__(self) -> None:
        check_positive("weight", self.weight)


def event_ratio_of_counts(
    counts: ErrorCounts,
    *,
    setting: Setting,
    contrast: Contrast,
    delta: float,
    threshold_policy: str = "event",
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` from the error counts of one event; the bound's confidence is 1 -
    ``counts.alpha``.

    Assumes independent trials, and that event and ``contrast`` were fixed before these counts were seen. ``epsilon``:
    the claimed one, from which ``detectable`` is computed. Raises ValueError for levels out of range and for trials
    that are not independent.
    """
    check_independent_trials(setting, "event_ratio", delta, counts.alpha)
    rates = _likely_and_rare(counts, contrast.complement)
    high, n_high, low, n_low = rates
    estimate = math.log((high / n_high - delta) / (low / n_low)) if low and high / n_high > delta else None
    return measured_counts(
        counts,
        delta=delta,
        epsilon=epsilon,
        estimator="event_ratio",
        assumption=INDEPENDENT_TRIALS,
        threshold_policy=threshold_policy,
        epsilon_low=ratio_low(*rates, weight=contrast.weight, delta=delta, alpha=counts.alpha),
        estimate=estimate,
        ceiling=largest_certifiable_epsilon(counts.n0, counts.n1, delta, counts.alpha),
        witness=witness,
        setting=setting,
    )


def under_tangent(counts: ErrorCounts, tangent: Tangent) -> bool:
    """Return whether an event's error counts refute a tangent of a claim's trade-off curve, at the error probability
    alpha of the counts.

    One test of both rates: it needs about half of the trials that two separate bounds do where neither rate is small.
    Assumes independent trials, and that event and tangent were fixed before the counts were seen.
    """
    rates, weight = _likely_and_rare(counts, tangent.complement), math.exp(tangent.epsilon)
    return _refutes(*rates, tangent.epsilon, weight=weight, delta=tangent.delta, alpha=counts.alpha, every=1)


def tangent_low(counts: ErrorCounts, tangent: Tangent) -> float:
    """Return a lower bound on epsilon at a tangent's delta; ``under_tangent`` compares this bound with the tangent's
    epsilon.
    """
    rates, weight = _likely_and_rare(counts, tangent.complement), math.exp(tangent.epsilon)
    return ratio_low(*rates, weight=weight, delta=tangent.delta, alpha=counts.alpha)


def refuted_point(measured: Measurement) -> tuple[float, float] | None:
    """Return a false-positive rate (FPR) and a false-negative rate (FNR) that together refute the stated trade-off
    curve; None unless the curve was refuted by counted errors. Both returned rates are upper bounds or, if a tangent
    was tested, the counted FPR and the largest FNR that the test allows at this FPR.
    """
    if not measured.below_curve:
        return None
    if measured.tangent is None:
        return measured.fpr_high or 0.0, measured.fnr_high or 0.0
    if measured.false_positives is None or measured.false_negatives is None:
        return None
    counts = {one.name: getattr(measured, one.name) for one in fields(ErrorCounts)}
    # Half of the level, as the other half is that of the bound on epsilon.
    tangent, errors = measured.tangent, ErrorCounts(**counts | {"alpha": measured.alpha / 2})
    delta = crossing(lambda delta: under_tangent(errors, replace(tangent, delta=delta)), high=1.0, relative=1e-4)[0]
    fpr = errors.false_positives / errors.n0
    return fpr, float(replace(tangent, delta=delta).fnr(fpr))


def _likely_and_rare(counts: ErrorCounts, complement: bool) -> tuple[int, int, int, int]:
    """Hits and trials where an event, or its complement, is likely, and where it is not."""
    if complement:
        return counts.n0 - counts.false_positives, counts.n0, counts.false_negatives, counts.n1
    return counts.n1 - counts.false_negatives, counts.n1, counts.false_positives, counts.n0


def refuted_fnr(tangent: Tangent, fpr: float, n: int, alpha: float, power: float = 0.9) -> float:
    """Return the largest false-negative rate of an event at which ``under_tangent`` refutes the claim with probability
    ``power``, given the event's false-positive rate ``fpr`` and ``n`` trials of each input; 0 if there is none.

    By the normal approximation of the statistic, which rates of some hundred hits need.
    """
    slope = math.exp(-tangent.epsilon if tangent.complement else tangent.epsilon)
    claimed = float(tangent.fnr(fpr))
    deviations = float(ndtri(1 - alpha)) * _LOSS, float(ndtri(power))

    def enough(fnr: float) -> bool:
        errors = [math.sqrt((one * (1 - one) + slope**2 * fpr * (1 - fpr)) / n) for one in (claimed, fnr)]
        return claimed - fnr >= deviations[0] * errors[0] + deviations[1] * errors[1]

    return crossing(enough, high=claimed)[0] if claimed > 0 and enough(0.0) else 0.0


def ratio_low(k1: int, n1: int, k0: int, n0: int, *, weight: float, delta: float, alpha: float) -> float:
    """Return the largest epsilon that the test refutes at level ``alpha``; 0 if it refutes none.

    ``k1`` of ``n1`` trials hit where the event is likely, ``k0`` of ``n0`` where it is not.
    """

    def refutes(epsilon: float, every: int = 1) -> bool:
        return _refutes(k1, n1, k0, n0, epsilon, weight=weight, delta=delta, alpha=alpha, every=every)

    if not refutes(0.0):
        return 0.0
    # The p-value grows with epsilon, because the weight does not depend on it. A few parts find the place.
    refuted, other = 0.0, math.log(n0 / max(k0, 1)) + 2.0
    for _ in range(_STEPS):
        middle = (refuted + other) / 2
        refuted, other = (middle, other) if refutes(middle, _PARTS // 4) else (refuted, middle)
        if other - refuted < 1e-5 * max(1.0, refuted):
            break
    # All parts prove it: a little less, until they do.
    step = _STEP * math.sqrt(1 / max(k1, 1) + 1 / max(k0, 1))
    return next((shown for back in range(_STEPS) if refutes(shown := max(0.0, refuted - back * step))), 0.0)


def _refutes(
    k1: int, n1: int, k0: int, n0: int, epsilon: float, *, weight: float, delta: float, alpha: float, every: int
) -> bool:
    """Whether the p-value of ``p1 <= e^epsilon p0 + delta`` is at most alpha; ``every`` > 1 looks at some parts
    only.
    """
    share = alpha * _SHARE
    ends = 1 - float(upper_bound(n0 - k0, n0, share / 2)), float(upper_bound(k0, n0, share / 2))
    edges = np.linspace(*ends, _PARTS + 1)
    # Over each part of the interval: the likelier hits at its upper end, against the rarer at its lower end.
    lower, upper = edges[:-1:every], edges[1::every]
    above = np.minimum(1.0, math.exp(epsilon) * upper + delta)
    return float(_tail(k1 - weight * k0, weight, lower, n0, above, n1).max()) <= alpha - share


def _tail(seen: float, weight: float, low: FloatArray, n_low: int, high: FloatArray, n_high: int) -> FloatArray:
    """An upper bound on the probability that the contrast is at least ``seen``, for each pair of rates (low, high)."""
    spread = np.sqrt(n_low * low * (1 - low)) + 1.0
    first = np.maximum(0.0, np.floor(n_low * low - _REACH * spread))
    last = np.minimum(float(n_low), np.ceil(n_low * low + _REACH * spread))
    # Rows are rates, columns the first counts of blocks: within a block, the smallest count is the likeliest to exceed.
    starts = np.floor(first + (last - first) * np.linspace(0, 1, _BLOCKS + 1)[:, np.newaxis]).T
    starts[:, 0] = 0.0
    # Of counts below 0 there are none, but bdtr(-1) is NaN.
    below = np.where(starts > 0, bdtr(np.maximum(starts - 1, 0), n_low, low[:, np.newaxis]), 0.0)
    mass = np.diff(below, axis=1, append=1.0)
    needed = np.ceil(seen + weight * starts)
    chance = np.where(
        needed <= 0,
        1.0,
        np.where(needed > n_high, 0.0, bdtrc(np.clip(needed, 1, n_high) - 1, n_high, high[:, np.newaxis])),
    )
    return np.asarray((mass * chance).sum(axis=1), dtype=np.float64)
