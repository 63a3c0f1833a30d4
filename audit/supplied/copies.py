"""Refuses scores that are copies: one set of scores given twice, or every row of a file repeated."""

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ..arrays import FloatArray, IntArray
from ..evidence import Design

_CHANCE = math.log(1e-6)
"""Log probability below which independent trials are taken not to have given such equal scores."""
_OTHERS = {
    Design.INDEPENDENT: "give scores of other runs, without the canary, as those of non-members",
    Design.ONE_RUN: "give the scores of the canaries that were left out as those of non-members",
}
_ONCE = {
    Design.INDEPENDENT: "give one row of each run, or name the run of each row (--clusters COLUMN, in Python "
    'design="clustered")',
    Design.ONE_RUN: "give one row of each canary",
}


def check_copies(member: NDArray[Any], nonmember: NDArray[Any], *, design: Design) -> None:
    """Raise ValueError where members and non-members share their scores, or where each score is repeated.

    ``member``: (n1,) or (n1, ...), ``nonmember``: (n0,) or (n0, ...), numbers or texts. Ties are allowed, as scores on
    a grid have them:
    exchangeable trials are refused with probability of about 1e-6 at most per test.
    """
    if member.shape[1:] != nonmember.shape[1:]:
        raise ValueError(
            f"member and nonmember must have the same number of columns, got shapes {member.shape} and "
            f"{nonmember.shape}"
        )
    codes = _codes(np.concatenate([member, nonmember]))
    sides = codes[: len(member)], codes[len(member) :]
    within, out = (np.bincount(side, minlength=int(codes.max()) + 1) for side in sides)
    if np.array_equal(within, out) and _equal_by_chance(*sides, within, ordered=member.ndim == 1) < _CHANCE:
        raise ValueError(
            f"members and non-members have the same {len(member):,} scores, so these compare nothing: {_OTHERS[design]}"
        )
    common = int(np.count_nonzero(np.minimum(within, out)))
    # Of c tied pairs, exchangeable trials split each with probability 2^c / C(2c, c), about 2^-c sqrt(pi c).
    if max(within.max(), out.max()) == 1 and common * math.log(0.5) + math.log(math.pi * max(common, 1)) / 2 < _CHANCE:
        raise ValueError(
            f"{common:,} scores of members are exactly those of non-members, while no score occurs twice among either: "
            "they are copies, or of pairs of runs that share their noise; each run needs noise of its own"
        )
    for name, counts in (("members", within), ("non-members", out)):
        kept = counts[counts > 0]
        times = int(np.gcd.reduce(kept))
        # A count is a multiple of k by chance with probability of about 1 / k.
        if times > 1 and -len(kept) * math.log(times) < _CHANCE:
            raise ValueError(
                f"every score of {name} occurs {times} times, or a multiple of it ({len(kept):,} different scores in "
                f"{int(kept.sum()):,} rows): repeated rows are no independent trials; {_ONCE[design]}"
            )


def _codes(rows: NDArray[Any]) -> IntArray:
    """A number for each row, equal for equal rows; scores have numbers in their order."""
    if rows.ndim == 1:
        return np.asarray(np.unique(rows, return_inverse=True)[1], dtype=np.int64)
    # Rows may be whole models, which are too large to be sorted.
    digests = [hashlib.sha256(row.tobytes()).hexdigest() for row in rows]
    return np.asarray(np.unique(digests, return_inverse=True)[1], dtype=np.int64)


def remark(member: FloatArray, nonmember: FloatArray) -> str:
    """Return a remark on scores that separate members from non-members by two values alone; else an empty string.

    An attack that finds its canary in every run has such scores, and so has a column of the truth.
    """
    if not all((side == side[0]).all() for side in (member, nonmember)) or np.array_equal(member[0], nonmember[0]):
        return ""
    return "; members have one score and non-members another: make sure that scores were computed without the truth"


def _equal_by_chance(member: IntArray, nonmember: IntArray, counts: IntArray, *, ordered: bool) -> float:
    """The log probability that exchangeable trials have the same scores ``counts`` times on both sides, in the order
    that they have; rows are not ``ordered``, so that a sorted file of them is not noticed.
    """
    n = len(member)
    chance = float((gammaln(2 * counts + 1) - 2 * gammaln(counts + 1)).sum() - gammaln(2 * n + 1) + 2 * gammaln(n + 1))
    steps = np.diff(member)
    in_order = bool((steps >= 0).all() or (steps <= 0).all())
    # Scores in the same order are one more coincidence, unless both sides were sorted.
    if ordered and not in_order and np.array_equal(member, nonmember):
        chance += float(gammaln(counts + 1).sum() - gammaln(n + 1))
    return chance
