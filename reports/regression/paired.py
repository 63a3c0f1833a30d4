"""Paired statistics of one cell, and what they come to in a family of cells.

Both runs draw the same data, partition, initial model, sampling, noise and attack for a seed, whatever the defense. So
the differences by seed scatter less than the two runs do, and a t test on them sees a change of their scatter's size
with a handful of seeds. It takes the differences for normal: for a few seeds of a metric in coarse steps its level is
approximate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.special import stdtr, stdtrit

ALPHA = 0.05
"""Chance that any cell of a family fails where none got worse; and of each upper end that it is too low."""
_EQUAL = 1e-9
"""Differences that scatter less, relative to the values, are equal: rounding must not look like a tiny variance."""


class CellOutcome(StrEnum):
    """What is said of a cell. PASS is not "as private as before": no worse than the margin, at the stated level.

    Only the tests behind FAIL are many at once, and corrected. A run is fine if every cell passes: one that is as bad
    as its margin slips through with 5 % at most, however many stand beside it.
    """

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class Change:
    """How much worse a cell got, positive is worse, in the metric's unit.

    ``low`` and ``high``: one-sided 95 % ends (together a 90 % interval), None where the seeds allow none. ``p``: of
    "it did not get worse", alone; ``p_family``: after Holm. ``correlation``: of the two runs over the seeds, None where
    one does not vary. ``reason``: why there is no interval, else empty.
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
        """FAIL: significantly worse, and by more than half the margin. PASS: the upper end stays below the margin."""
        if self.p_family <= ALPHA and self.worse > margin / 2:
            return CellOutcome.FAIL
        return CellOutcome.PASS if self.high is not None and self.high < margin else CellOutcome.INCONCLUSIVE

    def why(self, margin: float) -> str:
        """Why it is INCONCLUSIVE, in words."""
        if self.high is None:
            return self.reason
        return f"it may have got worse by {self.high:.3g}, which is not below the margin of {margin:g}"


def paired_change(base: Sequence[float], new: Sequence[float], *, sign: int) -> Change:
    """The change of one cell over its seeds.

    Args:
        base, new: (n,), one value a seed, in the same order.
        sign: 1 where a higher value is worse, -1 where a lower one is.

    Raises:
        ValueError: lengths that differ, no value, a value that is no finite number, another sign.
    """
    one, two = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    if sign not in (1, -1):
        raise ValueError(f"sign must be 1 or -1, got {sign!r}")
    if one.shape != two.shape or one.ndim != 1 or one.size == 0:
        raise ValueError(f"base and new must be rows of one length >= 1, got {one.shape} and {two.shape}")
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise ValueError(f"base and new must be finite numbers, got {base!r} and {new!r}")
    differences = sign * (two - one)
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
        return replace(alone, reason="one seed: it has no scatter to hold a change against")
    if float(np.ptp(differences)) <= _EQUAL * scale:
        return _equal(alone, _EQUAL * scale)
    return _t(alone, float(differences.std(ddof=1)) / math.sqrt(len(one)))


def _t(change: Change, error: float) -> Change:
    freedom = change.seeds - 1
    half = float(stdtrit(freedom, 1 - ALPHA)) * error
    p = float(stdtr(freedom, -change.worse / error))
    return replace(change, low=change.worse - half, high=change.worse + half, p=p)


def _equal(change: Change, tolerance: float) -> Change:
    """The same difference in every seed. The t test would call it certain, yet labels of eight uploads come in eighths:
    three equal steps are no rarity. What holds without a variance is the sign: for a change that is worse as often as
    better, n equal signs have chance 2^-n. No change at all, in two seeds or more, is no change.
    """
    if abs(change.worse) <= tolerance:
        return replace(change, low=0.0, high=0.0)
    chance = 0.5**change.seeds
    p = chance if change.worse > 0 else 1.0
    if chance > ALPHA:
        words = f"the same change in all {change.seeds} seeds: without scatter it takes 5 seeds to bound it"
        return replace(change, p=p, reason=words)
    return replace(change, low=change.worse, high=change.worse, p=p)


def _correlation(one: np.ndarray, two: np.ndarray, tolerance: float) -> float | None:
    if len(one) < 3 or min(float(np.ptp(one)), float(np.ptp(two))) <= tolerance:
        return None
    one, two = one - one.mean(), two - two.mean()
    return float(one @ two / math.sqrt((one @ one) * (two @ two)))


def holm(changes: Sequence[Change]) -> list[Change]:
    """The same changes with their p in this family (Holm 1979): no more than alpha that any of them fails unjustly."""
    adjusted, least = [1.0] * len(changes), 0.0
    for rank, place in enumerate(sorted(range(len(changes)), key=lambda place: changes[place].p)):
        least = max(least, min(1.0, (len(changes) - rank) * changes[place].p))
        adjusted[place] = least
    return [replace(change, p_family=p) for change, p in zip(changes, adjusted, strict=True)]
