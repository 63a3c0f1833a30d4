"""Refuses scores that are copies: one set of scores given twice, or every row of a file repeated."""

import math

import numpy as np
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


def check_copies(member: FloatArray, nonmember: FloatArray, *, design: Design) -> None:
    """Raise ValueError where members and non-members share their scores, or where each score is repeated.

    ``member``: (n1,) or (n1, d), ``nonmember``: (n0,) or (n0, d). Ties are allowed, as scores on a grid have them:
    exchangeable trials are refused with probability 1e-6 at most per test.
    """
    if member.shape[1:] != nonmember.shape[1:]:
        raise ValueError(
            f"member and nonmember must have the same number of columns, got shapes {member.shape} and "
            f"{nonmember.shape}"
        )
    pooled = np.concatenate([member, nonmember])
    codes = np.unique(pooled, axis=0, return_inverse=True)[1].reshape(-1)
    sides = codes[: len(member)], codes[len(member) :]
    within, out = (np.bincount(side, minlength=int(codes.max()) + 1) for side in sides)
    if np.array_equal(within, out) and _equal_by_chance(*sides, within) < _CHANCE:
        raise ValueError(
            f"members and non-members have the same {len(member):,} scores, so these compare nothing: {_OTHERS[design]}"
        )
    common = int(np.count_nonzero(np.minimum(within, out)))
    # Tied scores of exchangeable trials are as often two members or two non-members as one of each.
    if max(within.max(), out.max()) == 1 and -common * math.log(2) < _CHANCE:
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


def remark(member: FloatArray, nonmember: FloatArray) -> str:
    """Return a remark on scores that separate members from non-members by two values alone; else an empty string.

    An attack that finds its canary in every run has such scores, and so has a column of the truth.
    """
    if not all((side == side[0]).all() for side in (member, nonmember)) or np.array_equal(member[0], nonmember[0]):
        return ""
    return "; members have one score and non-members another: make sure that scores were computed without the truth"


def _equal_by_chance(member: IntArray, nonmember: IntArray, counts: IntArray) -> float:
    """The log probability that exchangeable trials have the same scores ``counts`` times on both sides, in the order
    that they have.
    """
    n = len(member)
    chance = float((gammaln(2 * counts + 1) - 2 * gammaln(counts + 1)).sum() - gammaln(2 * n + 1) + 2 * gammaln(n + 1))
    steps = np.diff(member)
    in_order = bool((steps >= 0).all() or (steps <= 0).all())
    # Scores in the same order are one more coincidence, unless both sides were sorted.
    if np.array_equal(member, nonmember) and not in_order:
        chance += float(gammaln(counts + 1).sum() - gammaln(n + 1))
    return chance
