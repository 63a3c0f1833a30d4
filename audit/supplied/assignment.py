"""Finds scores that can refute nothing, because nearly all of them are equal: constant scores show no violation.

The scores are assigned anew, the highest to members. Where not even this assignment would refute the claim, neither
could any attack with these scores, whatever their power by the number of trials.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import FloatArray
from ..claim import Claim
from ..finding import Finding, Verdict, judge
from ..measurement import Measurement
from .power import weakness_of

_ROUNDING = 1e-12
"""Relative differences that constant scores may have, because they were rounded."""
_ALL_EQUAL = "weak test: all scores are equal, so that the attack distinguishes nothing"
_ONE_SIDED = "weak test: all scores lie on one side of the threshold, so that the attack distinguishes nothing"
_TOO_ALIKE = (
    "weak test: so many scores are equal, or so close to each other, that no assignment of them to members and "
    "non-members would refute the claim"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Assignment:
    """Scores (n1,) or rows (n1, d) of members and those of non-members, higher means member.

    ``threshold``: one that was fixed before, or None.
    """

    member: FloatArray
    nonmember: FloatArray
    threshold: float | None = None


def judged_with_power(
    claim: Claim, measured: Measurement, shown: Assignment, measure: Callable[[Assignment], Measurement], *, seed: int
) -> Finding:
    """Judge the claim by what was measured of the scores ``shown``, UNDERPOWERED where these could refute nothing.

    ``measure`` measures another assignment of the same scores.
    """
    weakness = weakness_of(measured)
    finding = judge(claim, measured, weakness=weakness)
    if finding.verdict is not Verdict.NOT_REFUTED or not (unseen := _powerless(claim, shown, measure, seed)):
        return finding
    return judge(claim, measured, weakness=replace(weakness, unseen=unseen))


def _powerless(claim: Claim, shown: Assignment, measure: Callable[[Assignment], Measurement], seed: int) -> str:
    """Why these scores can refute nothing; empty where they can."""
    pooled = np.concatenate([shown.member, shown.nonmember])
    with np.errstate(over="ignore"):
        spread = pooled.max(axis=0) - pooled.min(axis=0)
    if (spread <= _ROUNDING * np.abs(pooled).max(axis=0)).all():
        return _ALL_EQUAL
    if shown.threshold is not None and len(np.unique(pooled > shown.threshold)) == 1:
        return _ONE_SIDED
    try:
        best = judge(claim, measure(_best(pooled, len(shown.member), shown.threshold, seed)))
    except ValueError:
        # The estimator cannot use the other assignment, which shows nothing about this one.
        return ""
    return "" if best.verdict is Verdict.REFUTED else _TOO_ALIKE


def _best(pooled: FloatArray, members: int, fixed: float | None, seed: int) -> Assignment:
    """The highest scores as those of members, each side in random order."""
    ordered = pooled[_order(pooled)]
    out, within = ordered[:-members], ordered[-members:]
    threshold = None
    if not np.array_equal(out[-1], within[0]):
        # Without this gap a threshold that was chosen on one half would make errors on the other.
        with np.errstate(over="ignore"):
            moved = within + (pooled.max() - pooled.min())
        within = moved if np.isfinite(moved).all() else within
    if fixed is not None:
        edge = float(out[-1])
        # Ties at the edge are on the side of the threshold on which fewer scores differ from them.
        many_above = np.count_nonzero(within > edge) >= np.count_nonzero(out < edge)
        threshold = edge if many_above else float(np.nextafter(edge, -np.inf))
    rng = np.random.default_rng(seed)
    return Assignment(member=rng.permutation(within), nonmember=rng.permutation(out), threshold=threshold)


def _order(pooled: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    if pooled.ndim == 1:
        return np.argsort(pooled)
    # Rows have no order: those that differ from the most frequent one come last, as an attack would use them.
    codes, counts = np.unique(pooled, axis=0, return_inverse=True, return_counts=True)[1:]
    codes = codes.reshape(-1)
    return np.lexsort((codes, codes != counts.argmax()))
