"""Low rate: how many members are found at a small false-positive rate, and what of it is more than luck.

An estimate reads both rates off the same scores; said as a fact with a confidence bound on the one alone it is false in
27 to 50 % of runs without any leak. The joint statement bounds both rates, at alpha / 2 each: the true false-positive
rate is at most ``fpr_high`` and the true true-positive rate at least ``tpr_low``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray, IntArray
from ..binomial import check_level, upper_bound
from .scores_by_run import ScoresByRun, run_weights

ENOUGH = 10
"""A rate is stated only where so many independent non-members may lie above the threshold."""
LADDER = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""False-positive rates at which a report states anything."""


@dataclass(frozen=True, kw_only=True)
class JointStatement:
    """With probability 1 - ``alpha``: FPR <= ``fpr_high`` and TPR >= ``tpr_low`` at ``threshold``, rates of an average
    run. ``n0``, ``n1``: the independent runs that were counted, without and with the candidate.
    """

    rate: float
    threshold: float
    fpr_high: float
    tpr_low: float
    alpha: float
    n0: int
    n1: int

    def exceeds(self, limit: Callable[[float], float]) -> bool:
        """Whether more members were found than ``limit``, a non-decreasing function of the FPR, allows anybody."""
        return self.tpr_low > limit(self.fpr_high)

    @property
    def beats_chance(self) -> bool:
        """Whether members score above the threshold more often than non-members do."""
        return self.exceeds(lambda fpr: fpr)


def tpr_at(member: FloatArray, nonmember: FloatArray, rate: float) -> float:
    """Point estimate: share of ``member`` (n1,) strictly above the lowest score that at most ``rate`` of ``nonmember``
    (n0,) exceed. Equal scores count for nobody, so that constant ones give 0.
    """
    threshold = _threshold(nonmember, np.arange(len(nonmember)), _allowed(len(nonmember), rate))
    return float((member > threshold).mean())


def is_enough(count: int, rate: float) -> bool:
    """Whether ``count`` independent non-members allow a statement at this false-positive rate."""
    return round(count * rate, 9) >= ENOUGH


def counted_runs(sides: ScoresByRun) -> int:
    """Independent non-members behind a joint statement; 0 where a side would have none."""
    return 0 if sides.one_side_per_run is None else len(np.unique(sides.one_side_per_run.nonmember_runs))


def lowest_rate(runs: int) -> float | None:
    """The lowest rate of the ladder that so many independent non-members allow; None below twenty."""
    return next((rate for rate in LADDER if is_enough(runs, rate)), None)


def joint_statement(sides: ScoresByRun, rate: float, alpha: float = 0.05) -> JointStatement:
    """What holds at the threshold that ``rate`` in (0, 1) of the non-members exceed.

    The threshold is an order statistic of the non-members whose number was fixed before, so the Clopper-Pearson bound
    of that number holds for it (it is the order statistic's own law), whatever ties there are; members are counted in
    other runs. Where a run gives several scores its rate counts, in [0, 1], and the binomial tail is taken e-fold
    (Bentkus 2004). Runs with scores on both sides give one of them.

    Raises ValueError where ``rate`` times the independent runs without the candidate is below ten.
    """
    check_level("alpha", alpha)
    check_level("rate", rate)
    separated, count = sides.one_side_per_run, counted_runs(sides)
    if separated is None or not is_enough(count, rate):
        raise ValueError(
            f"a statement at FPR {rate:g} needs {math.ceil(round(ENOUGH / rate, 9))} independent runs without the "
            f"candidate, got {count}"
        )
    allowed = _allowed(count, rate)
    threshold = _threshold(separated.nonmember, separated.nonmember_runs, allowed)
    return JointStatement(
        rate=rate,
        threshold=threshold,
        # Of the number allowed, not of those counted: with ties fewer lie above, by choice of the threshold.
        fpr_high=_upper(allowed, separated.nonmember_runs, alpha / 2),
        tpr_low=1
        - _upper(
            float(run_weights(separated.member_runs)[separated.member <= threshold].sum()),
            separated.member_runs,
            alpha / 2,
        ),
        alpha=alpha,
        n0=count,
        n1=len(np.unique(separated.member_runs)),
    )


def _allowed(count: int, rate: float) -> int:
    return math.floor(round(count * rate, 9))


def _threshold(scores: FloatArray, runs: IntArray, allowed: int) -> float:
    """The lowest of ``scores`` that ``allowed`` of them, every run weighing 1, exceed at most."""
    levels, place = np.unique(scores, return_inverse=True)
    weights = np.bincount(place, weights=run_weights(runs))
    above = weights.sum() - np.cumsum(weights)
    return float(levels[np.argmax(above <= allowed + 1e-9)])


def _upper(count: float, runs: IntArray, alpha: float) -> float:
    """Upper bound at ``alpha`` on a rate of which ``count`` was seen in all runs together."""
    several = len(np.unique(runs))
    worse = math.e if several < len(runs) else 1.0
    return float(upper_bound(min(several, math.ceil(count - 1e-9)), several, alpha / worse))
