"""Estimates an attack's true-positive rate at a small false-positive rate, with joint confidence bounds on both rates.

The estimate takes both rates from the same scores. With a confidence bound on the TPR alone, the resulting statement is
false in 27 to 50 % of runs without any leak. The joint statement bounds both rates, at alpha / 2 each: the
true FPR is at most ``fpr_high`` and the true TPR at least ``tpr_low``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray, IntArray
from ..binomial import check_level, upper_bound
from .scores_by_run import ScoresByRun, run_weights

ENOUGH = 10
"""A rate is stated only where this many independent non-members may lie above the threshold."""
LADDER = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""False-positive rates at which a report states anything."""


@dataclass(frozen=True, kw_only=True)
class JointStatement:
    """Confidence bounds on both rates of an attack at one threshold: FPR at most ``fpr_high``, TPR at least
    ``tpr_low``.

    They hold at ``threshold`` jointly, with probability 1 - ``alpha``.

    Both are rates of an average run. ``rate``: the FPR that the threshold was chosen for; ``n0``, ``n1``: the
    independent runs that were counted, without and with the candidate.
    """

    rate: float
    threshold: float
    fpr_high: float
    tpr_low: float
    alpha: float
    n0: int
    n1: int

    def exceeds(self, limit: Callable[[float], float]) -> bool:
        """Return whether the lower bound on the attack's TPR exceeds the largest TPR that a claim allows at the upper
        bound on the FPR.

        ``limit`` is a non-decreasing function of the FPR.
        """
        return self.tpr_low > limit(self.fpr_high)


def tpr_at(member: FloatArray, nonmember: FloatArray, rate: float) -> float:
    """Return the attack's estimated true-positive rate at a false-positive rate of at most ``rate``.

    The share of ``member`` (n1,) strictly above the lowest score that at most ``rate`` of ``nonmember`` (n0,) exceed.
    Equal scores are not above the threshold, so that constant scores give 0.
    """
    threshold = _threshold(nonmember, np.arange(len(nonmember)), _allowed(len(nonmember), rate))
    return float((member > threshold).mean())


def is_enough(count: int, rate: float) -> bool:
    """Return whether ``count`` independent non-members suffice for confidence bounds at this false-positive rate."""
    # Rounded, because 1000 * 0.01 may fall just below 10 in binary floating point.
    return round(count * rate, 9) >= ENOUGH


def counted_runs(sides: ScoresByRun) -> int:
    """Return how many independent non-members are available for confidence bounds on an attack's FPR and TPR.

    0 where members or non-members would have none.
    """
    return 0 if sides.one_side_per_run is None else len(np.unique(sides.one_side_per_run.nonmember_runs))


def lowest_rate(runs: int) -> float | None:
    """Return the lowest of the FPRs to report at which ``runs`` independent non-members suffice for confidence bounds;
    None if there is none.

    The reported rates are those of ``LADDER``.
    """
    return next((rate for rate in LADDER if is_enough(runs, rate)), None)


def joint_statement(sides: ScoresByRun, rate: float, alpha: float = 0.05) -> JointStatement:
    """Compute confidence bounds on an attack's TPR and FPR at the threshold that a share ``rate`` of non-members
    exceeds.

    ``rate`` lies in (0, 1).

    The threshold is an order statistic of the non-members whose number was fixed before, so the Clopper-Pearson bound
    of that number holds for it (it is the order statistic's own law), whatever ties there are; members are counted in
    other runs. Where a run gives several scores, its rate in [0, 1] is counted, and the binomial tail is multiplied by
    e (Bentkus 2004). Runs with scores on both sides contribute one side only.

    Raises ValueError where ``rate`` times the independent runs without the candidate is below ten.
    """
    check_level("alpha", alpha)
    check_level("rate", rate)
    separated, count = sides.one_side_per_run, counted_runs(sides)
    if separated is None or not is_enough(count, rate):
        raise ValueError(
            f"bounds at false-positive rate {rate:g} need {math.ceil(round(ENOUGH / rate, 9))} independent runs "
            f"without the candidate, got {count}"
        )
    allowed = _allowed(count, rate)
    threshold = _threshold(separated.nonmember, separated.nonmember_runs, allowed)
    return JointStatement(
        rate=rate,
        threshold=threshold,
        # The allowed number, not the counted one: with ties fewer lie above, but the threshold was chosen by it.
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
    """The lowest of ``scores`` that at most ``allowed`` of them exceed, where every run weighs 1."""
    levels, place = np.unique(scores, return_inverse=True)
    weights = np.bincount(place, weights=run_weights(runs))
    above = weights.sum() - np.cumsum(weights)
    return float(levels[np.argmax(above <= allowed + 1e-9)])


def _upper(count: float, runs: IntArray, alpha: float) -> float:
    """Upper bound at ``alpha`` on the mean rate of a run, when the rates of all runs sum to ``count``."""
    several = len(np.unique(runs))
    # With several scores per run the summands are shares in [0, 1], and the tail is at most e times the binomial one.
    worse = math.e if several < len(runs) else 1.0
    return float(upper_bound(min(several, math.ceil(count - 1e-9)), several, alpha / worse))
