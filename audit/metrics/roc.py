"""ROC curve of an attack, the area under it with a confidence interval, and the rates that a claim allows."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit, stdtrit

from ..arrays import FloatArray
from ..binomial import check_level, upper_bound
from .scores_by_run import ScoresByRun

_NOTHING = 1e-12
"""A standard error below this is rounding error of scores that do not vary."""


@dataclass(frozen=True, kw_only=True)
class Area:
    """The area under an attack's ROC curve, with the two ends ``low`` and ``high`` of its confidence interval.

    Both ends are None where the scores allow no interval; ``method`` names the method, or why there is none.
    """

    value: float
    low: float | None
    high: float | None
    method: str


def area(sides: ScoresByRun) -> float:
    """Return the area under the ROC curve: the probability that a member scores above a non-member.

    Ties count half (Mann-Whitney U over n1 n0).
    """
    return float(_above(sides.member, sides.nonmember).mean())


def area_interval(sides: ScoresByRun, level: float = 0.95) -> Area:
    """Return the area under the ROC curve with a confidence interval that allows for dependence between scores of one
    run.

    ``level`` is its confidence; the sample size is the number of runs, not of scores.

    The method is that of DeLong, DeLong, Clarke-Pearson (1988), with the influences of one run's scores summed before
    they are squared (Obuchowski 1997), on the logit scale, with Student's t at Welch's degrees of freedom. For scores
    without a single error it would give certainty: there disjoint pairs of runs, all ordered correctly, are counted
    instead (Clopper-Pearson). There is no interval from one run per side, nor where all scores tie.
    """
    check_level("level", level)
    value = area(sides)
    strata = _influences(sides, value)
    counts = [len(one) for one in strata]
    if min(counts) < 2:
        return Area(value=value, low=None, high=None, method="one independent run per side, no interval")
    parts = [n / (n - 1) * float(((one - one.mean()) ** 2).sum()) for n, one in zip(counts, strata, strict=True)]
    # n / (n - 1) makes each stratum's variance unbiased; strata of independent runs add.
    error = math.sqrt(sum(parts))
    if value in (0.0, 1.0):
        return _errorless(value, sides.runs // 2 if sides.has_mixed_runs else min(counts), level)
    if error < _NOTHING:
        return Area(value=value, low=None, high=None, method="scores that tie, no interval")
    freedom = sum(parts) ** 2 / sum(part**2 / (n - 1) for n, part in zip(counts, parts, strict=True))
    # On the logit scale, where the interval cannot leave (0, 1); the derivative there is 1 / (a (1 - a)).
    half = float(stdtrit(freedom, 0.5 + level / 2)) * error / (value * (1 - value))
    low, high = expit(logit(value) - half), expit(logit(value) + half)
    return Area(value=value, low=float(low), high=float(high), method="DeLong over runs, logit scale")


def _influences(sides: ScoresByRun, value: float) -> list[FloatArray]:
    """Each run's contribution to the error of the area: one stratum if runs have both sides, else one per side."""
    # In a mixed run the parts of both sides share noise, so they are added before anything is squared.
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
    """For each score, the share of ``others`` below it, ties counting half."""
    # The mean of both insertion points counts ties half without comparing all pairs.
    ordered = np.sort(others)
    places = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    return np.asarray(places / (2 * len(others)), dtype=np.float64)


def _errorless(value: float, pairs: int, level: float) -> Area:
    wrong = float(upper_bound(0, pairs, (1 - level) / 2))
    low, high = (1 - wrong, 1.0) if value == 1.0 else (0.0, wrong)
    return Area(value=value, low=low, high=high, method=f"Clopper-Pearson on {pairs} disjoint pairs of runs")


def roc_vertices(member: FloatArray, nonmember: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return an attack's false-positive and true-positive rate at every distinct score, from (0, 0) to (1, 1).

    Both arrays have shape (k,).

    ``member``: (n1,), ``nonmember``: (n0,) scores, higher means member. A tie moves both rates at once: there is one
    vertex per distinct score and none between, because no threshold separates equal scores. Vertices on a straight step
    are left out, because they do not change the line.
    """
    # From the highest score down, so that both rates rise from 0.
    thresholds = np.unique(np.concatenate([member, nonmember]))[::-1]
    above_member = len(member) - np.searchsorted(np.sort(member), thresholds, side="left")
    above_nonmember = len(nonmember) - np.searchsorted(np.sort(nonmember), thresholds, side="left")
    fpr = np.concatenate([[0.0], above_nonmember / len(nonmember)])
    tpr = np.concatenate([[0.0], above_member / len(member)])
    flat = (np.diff(fpr)[:-1] == 0) & (np.diff(fpr)[1:] == 0) | (np.diff(tpr)[:-1] == 0) & (np.diff(tpr)[1:] == 0)
    corners = np.concatenate([[True], ~flat, [True]])
    return fpr[corners], tpr[corners]


def largest_tpr(fpr: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """Return, for each false-positive rate in ``fpr``, the largest true-positive rate that (epsilon, delta)-DP allows.

    ``fpr`` lies in [0, 1].

    ``min(e^eps fpr + delta, 1 - e^-eps (1 - delta - fpr))``, cut to [0, 1] (Kairouz, Oh, Viswanath 2015).
    """
    limit = np.minimum(np.exp(epsilon) * fpr + delta, 1 - np.exp(-epsilon) * (1 - delta - fpr))
    return np.asarray(np.clip(limit, 0.0, 1.0), dtype=np.float64)
