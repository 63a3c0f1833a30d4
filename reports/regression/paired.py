"""Test how a metric changed over paired seeds, with a correction for the number of metrics.

For a given seed both runs use the same data, partition, initial model, sampling, noise and attack. So the differences
by seed vary less than the runs do, and a t test on them detects small changes with a few seeds. The test assumes normal
differences: for few seeds of a metric in coarse steps its level is approximate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.special import stdtr, stdtrit

ALPHA = 0.05
"""Probability that any cell of a family fails although none got worse; and that a given upper end is too low."""
_EQUAL = 1e-9
"""Differences that vary less than this, relative to the values, count as equal: rounding is not a tiny variance."""


class CellOutcome(StrEnum):
    """The outcome for one compared metric. PASS means that the metric is no worse than the margin allows, not that it
    is as private as before.

    Only the tests for FAIL are corrected for their number. A run needs PASS in every cell, so a cell that is worse by
    its margin passes with probability 5 % at most, whatever the number of cells.
    """

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of one metric between two runs, in the metric's unit; a positive change is a worsening.

    ``low`` and ``high``: one-sided 95 % bounds (together a 90 % interval), None where the seeds allow none. ``p``: of
    the hypothesis that the cell did not get worse; ``p_family``: after Holm's correction. ``correlation``: of the two
    runs over seeds, None where one does not vary. ``reason``: for a missing interval, else empty.
    """

    seeds: int
    base: float
    new: float
    worse: float
    low: float | None
    high: float | None
    p: float
    p_family: float = 1.0
    correlation: float | None
    reason: str = ""

    def outcome(self, margin: float) -> CellOutcome:
        """Return FAIL if the metric is significantly worse and by more than half the margin, PASS if the upper bound of
        the change is below the margin, else INCONCLUSIVE.
        """
        # With many seeds a tiny change is significant; half the margin keeps it from failing the run.
        if self.p_family <= ALPHA and self.worse > margin / 2:
            return CellOutcome.FAIL
        return CellOutcome.PASS if self.high is not None and self.high < margin else CellOutcome.INCONCLUSIVE

    def why(self, margin: float) -> str:
        """Return why the comparison of a metric is INCONCLUSIVE."""
        if self.high is None:
            return self.reason
        return f"it may have got worse by {self.high:.3g}, which is not below the margin of {margin:g}"


def paired_change(base: Sequence[float], new: Sequence[float], *, sign: int) -> Change:
    """Compute the change of one metric between two runs from its values by seed; a positive change is a worsening.

    Args:
        base, new: (n,), one value per seed, in the same order.
        sign: 1 where a higher value is worse, -1 where a lower one is.

    Raises:
        ValueError: different lengths, no value, a value that is not finite, another sign.
    """
    one, two = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    if sign not in (1, -1):
        raise ValueError(f"sign must be 1 if a higher value is worse, or -1 if a lower value is worse, got {sign!r}")
    if one.shape != two.shape or one.ndim != 1 or one.size == 0:
        raise ValueError(
            f"base and new must be one-dimensional arrays of the same length >= 1, got {one.shape} and {two.shape}"
        )
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise ValueError(f"base and new must be finite numbers, got {base!r} and {new!r}")
    differences = sign * (two - one)
    # At least 1: values near zero would otherwise make any rounding error look like a change.
    scale = max(1.0, float(np.abs(one).max()), float(np.abs(two).max()))
    alone = Change(
        seeds=len(one),
        base=float(one.mean()),
        new=float(two.mean()),
        worse=float(differences.mean()),
        low=None,
        high=None,
        p=1.0,
        correlation=_correlation(one, two, _EQUAL * scale),
    )
    if len(one) == 1:
        return replace(alone, reason="one seed: without variation over seeds a change cannot be tested")
    if float(np.ptp(differences)) <= _EQUAL * scale:
        return _equal(alone, _EQUAL * scale)
    return _t(alone, float(differences.std(ddof=1)) / math.sqrt(len(one)))


def _t(change: Change, error: float) -> Change:
    freedom = change.seeds - 1
    half = float(stdtrit(freedom, 1 - ALPHA)) * error
    p = float(stdtr(freedom, -change.worse / error))
    return replace(change, low=change.worse - half, high=change.worse + half, p=p)


def _equal(change: Change, tolerance: float) -> Change:
    """The same difference in every seed, for which a t test would report certainty.

    For a metric in coarse steps (labels of eight uploads come in eighths) equal differences are not rare. A sign test
    needs no variance: if worse and better are equally likely, n equal signs have probability 2^-n. A difference of zero
    in two or more seeds counts as no change.
    """
    if abs(change.worse) <= tolerance:
        return replace(change, low=0.0, high=0.0)
    chance = 0.5**change.seeds
    p = chance if change.worse > 0 else 1.0
    if chance > ALPHA:
        words = f"the same change in all {change.seeds} seeds: without variation it takes 5 seeds to bound it"
        return replace(change, p=p, reason=words)
    return replace(change, low=change.worse, high=change.worse, p=p)


def _correlation(one: np.ndarray, two: np.ndarray, tolerance: float) -> float | None:
    # Two points always correlate perfectly, and a constant has no correlation.
    if len(one) < 3 or min(float(np.ptp(one)), float(np.ptp(two))) <= tolerance:
        return None
    one, two = one - one.mean(), two - two.mean()
    return float(one @ two / math.sqrt((one @ one) * (two @ two)))


def holm(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with p values corrected for the number of metrics (Holm 1979): the probability of any false
    FAIL is at most alpha.
    """
    adjusted, least = [1.0] * len(changes), 0.0
    for rank, place in enumerate(sorted(range(len(changes)), key=lambda place: changes[place].p)):
        # The running maximum keeps the corrected values in the order of the p values.
        least = max(least, min(1.0, (len(changes) - rank) * changes[place].p))
        adjusted[place] = least
    return [replace(change, p_family=p) for change, p in zip(changes, adjusted, strict=True)]
