"""ROC: the rates that thresholds on scores reach, the area below them, and the rates that a claim forbids."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit, stdtrit

from ..arrays import FloatArray
from ..binomial import check_level, upper_bound
from .scores_by_run import ScoresByRun

_NOTHING = 1e-12
"""A standard error below this is rounding: the scores did not vary."""


@dataclass(frozen=True, kw_only=True)
class Area:
    """Area under the ROC curve with its two-sided interval, None where the scores allow none; ``method`` says how or
    why.
    """

    value: float
    low: float | None
    high: float | None
    method: str


def area(sides: ScoresByRun) -> float:
    """Chance that a member scores above a non-member, ties counting half (Mann-Whitney U over n1 n0)."""
    return float(_above(sides.member, sides.nonmember).mean())


def area_interval(sides: ScoresByRun, level: float = 0.95) -> Area:
    """The area with an interval that counts runs, not scores.

    DeLong, DeLong, Clarke-Pearson (1988), the influences of one run's scores summed before they are squared (Obuchowski
    1997), on the logit scale, with Student's t at Welch's degrees of freedom. Where the scores are told apart without
    an error that would give certainty: then disjoint pairs of runs, each right, are counted (Clopper-Pearson). No
    interval from one run a side, nor where all scores tie.
    """
    check_level("level", level)
    value = area(sides)
    strata = _influences(sides, value)
    counts = [len(one) for one in strata]
    if min(counts) < 2:
        return Area(value=value, low=None, high=None, method="one independent run a side, no interval")
    parts = [n / (n - 1) * float(((one - one.mean()) ** 2).sum()) for n, one in zip(counts, strata, strict=True)]
    error = math.sqrt(sum(parts))
    if value in (0.0, 1.0):
        return _errorless(value, sides.runs // 2 if sides.has_mixed_runs else min(counts), level)
    if error < _NOTHING:
        return Area(value=value, low=None, high=None, method="scores that tie, no interval")
    freedom = sum(parts) ** 2 / sum(part**2 / (n - 1) for n, part in zip(counts, parts, strict=True))
    half = float(stdtrit(freedom, 0.5 + level / 2)) * error / (value * (1 - value))
    low, high = expit(logit(value) - half), expit(logit(value) + half)
    return Area(value=value, low=float(low), high=float(high), method="DeLong over runs, logit scale")


def _influences(sides: ScoresByRun, value: float) -> list[FloatArray]:
    """Each run's part in the estimate's error: one stratum where runs have both sides, else one a side."""
    member = (_above(sides.member, sides.nonmember) - value) / len(sides.member)
    nonmember = (1 - _above(sides.nonmember, sides.member) - value) / len(sides.nonmember)
    if sides.has_mixed_runs:
        runs = np.concatenate([sides.member_runs, sides.nonmember_runs])
        return [_by_run(np.concatenate([member, nonmember]), runs)]
    return [_by_run(member, sides.member_runs), _by_run(nonmember, sides.nonmember_runs)]


def _by_run(values: FloatArray, runs: np.ndarray) -> FloatArray:
    _, place = np.unique(runs, return_inverse=True)
    return np.asarray(np.bincount(place, weights=values), dtype=np.float64)


def _above(scores: FloatArray, others: FloatArray) -> FloatArray:
    """For each score the share of ``others`` below it, ties counting half."""
    ordered = np.sort(others)
    places = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    return np.asarray(places / (2 * len(others)), dtype=np.float64)


def _errorless(value: float, pairs: int, level: float) -> Area:
    wrong = float(upper_bound(0, pairs, (1 - level) / 2))
    low, high = (1 - wrong, 1.0) if value == 1.0 else (0.0, wrong)
    return Area(value=value, low=low, high=high, method=f"Clopper-Pearson on {pairs} disjoint pairs of runs")


def roc_vertices(member: FloatArray, nonmember: FloatArray) -> tuple[FloatArray, FloatArray]:
    """FPR and TPR at every distinct score, from (0, 0) to (1, 1). Scores: higher means "took part".

    A tie moves both rates at once: there is one vertex per distinct score and none between, because no threshold
    separates equal scores. Vertices on a straight step are left out: they change no line.
    """
    thresholds = np.unique(np.concatenate([member, nonmember]))[::-1]
    above_member = len(member) - np.searchsorted(np.sort(member), thresholds, side="left")
    above_nonmember = len(nonmember) - np.searchsorted(np.sort(nonmember), thresholds, side="left")
    fpr = np.concatenate([[0.0], above_nonmember / len(nonmember)])
    tpr = np.concatenate([[0.0], above_member / len(member)])
    flat = (np.diff(fpr)[:-1] == 0) & (np.diff(fpr)[1:] == 0) | (np.diff(tpr)[:-1] == 0) & (np.diff(tpr)[1:] == 0)
    kept = np.concatenate([[True], ~flat, [True]])
    return fpr[kept], tpr[kept]


def largest_tpr(fpr: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """The largest TPR that (epsilon, delta)-DP leaves an attack at each ``fpr`` in [0, 1].

    ``min(e^eps fpr + delta, 1 - e^-eps (1 - delta - fpr))``, cut to [0, 1] (Kairouz, Oh, Viswanath 2015).
    """
    limit = np.minimum(np.exp(epsilon) * fpr + delta, 1 - np.exp(-epsilon) * (1 - delta - fpr))
    return np.asarray(np.clip(limit, 0.0, 1.0), dtype=np.float64)
