"""Check that the answers to all queries of a knowledge transfer have noise, whatever teachers vote. The check supplies
the votes, which is cheap.

Answers are drawn at the real number of queries, on votes of all kinds: with a lead of one vote, of all votes, or shared
by all labels. An answer that is the same in all runs of one input, and another one in all runs of its neighbour, has no
noise; and where a law of labels is published, labels other than the likeliest one must be as frequent as it says, on
votes of each kind and in each query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from ..audit.arrays import BoolArray, FloatArray
from ..audit.check import ANSWERED, IN_WITNESS, CheckResult
from ..audit.claim import Claim
from ..audit.ledger import SUITE
from ..audit.observer import ANSWERS
from ..defenses.transfer.worst_votes import Mechanism, Pair, mechanism_of, sums_votes
from ..fl.streams import Streams
from ..fl.transfer.protection import LabelLaw, TransferProtection
from ..fl.transfer.task import ABSTAINED, TransferPlan

_RUNS, _MOST_RUNS = 64, 4096
"""Runs of each input, and the most from which an answer counts as one without noise."""
_NUMBERS = 2**20
"""Vote counts of all runs of one input, at most, from which labels are counted."""


def vote_checks(
    protection: TransferProtection, plan: TransferPlan, claim: Claim, *, seed: int, votes: NDArray[np.float64] | None
) -> CheckResult:
    """Return the result of the check of all answers under a claim; ``votes``: as for ``mechanism_of``."""
    inputs = mechanism_of(claim, protection, plan, votes)
    if inputs is None:
        return ANSWERED.skipped("no neighbouring votes are known for this claim")
    mechanism, pairs = inputs
    rng = Streams(seed).generator("answers to all queries")
    law = protection.label_law(plan) if claim.observer == ANSWERS and sums_votes(protection) else None
    failed = _bare(mechanism, pairs, claim, rng) or (law and _by_law(mechanism, law, pairs, plan, rng))
    words = f"{plan.queries} queries, {len(pairs)} different vectors of votes"
    return failed or ANSWERED.at_most(0.0, 0.0, unit="answers", witness=words)


def _bare(mechanism: Mechanism, pairs: Sequence[Pair], claim: Claim, rng: np.random.Generator) -> CheckResult | None:
    """The failed check of answers that no noise changes and one teacher does; None where there are none."""
    for pair in pairs:
        first = [_drawn(mechanism, one, _RUNS, rng) for one in pair]
        bare = _constant(*first)
        if not bare.any():
            continue
        each = claim.epsilon / bare.sum()
        steady = log((exp(min(each, 30.0)) + claim.delta) / (1 + exp(min(each, 30.0))))
        needed = ceil(log(SUITE.level("answers", 2 * len(pairs) * bare.size)) / (2 * steady))
        if needed > _MOST_RUNS:
            continue
        again = [_drawn(mechanism, one, max(needed, _RUNS), rng) for one in pair]
        left = bare & _constant(*again) & (again[0][0] == first[0][0]) & (again[1][0] == first[1][0])
        if left.sum() == bare.sum():
            words = (
                f"{int(left.sum())} answers, the first one to query {int(left.argmax())}: one teacher changes them, "
            )
            words += f"and noise does not change them in {2 * len(again[0])} runs"
            return ANSWERED.failed(words, float(left.sum()), 0.0, unit="answers")
    return None


def _drawn(mechanism: Mechanism, one: FloatArray, runs: int, rng: np.random.Generator) -> NDArray[np.generic]:
    return mechanism(np.broadcast_to(one, (runs, *one.shape)), rng)


def _constant(one: NDArray[np.generic], other: NDArray[np.generic]) -> BoolArray:
    """Which answers are the same in all runs of each of two inputs, and differ between them."""
    same = (one == one[:1]).all(0) & (other == other[:1]).all(0) & (one[0] != other[0])
    return np.asarray(same)


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """How many released labels were not the likeliest one, and the logarithm of the chance of so few."""

    log_chance: float
    count: int
    expected: float
    words: str


def _by_law(
    mechanism: Mechanism, law: LabelLaw, pairs: Sequence[Pair], plan: TransferPlan, rng: np.random.Generator
) -> CheckResult | None:
    """The failed check of labels that are the likeliest one more often than by the law; None where none are."""
    tests, unseen, counts = list[_Counted](), np.zeros(plan.queries), np.zeros(plan.queries)
    for counts_of_kind in (one for pair in pairs for one in pair):
        chances = np.exp(law.log_probabilities(counts_of_kind))
        likeliest = chances.argmax(-1)
        rare = np.clip(1 - chances.max(-1), 0.0, 1.0)
        runs = max(_RUNS, _NUMBERS // counts_of_kind.size)
        labels = _drawn(mechanism, counts_of_kind, runs, rng)[:, : plan.queries]
        other = (np.where(labels == ABSTAINED, plan.classes, labels) != likeliest).sum(0)
        counts, unseen = counts + other, unseen + runs * np.log1p(-np.minimum(rare, 1 - 1e-12))
        if np.ptp(rare) < 1e-9:
            total, number = int(other.sum()), runs * plan.queries
            words = f"for the votes {counts_of_kind[0].astype(int).tolist()[:8]}, of {number} released labels"
            tests.append(
                _Counted(
                    log_chance=float(binom.logcdf(total, number, rare[0])),
                    count=total,
                    expected=number * float(rare[0]),
                    words=words,
                )
            )
    tests += [
        _Counted(log_chance=float(chance), count=0, expected=-float(chance), words=f"for all votes on query {query}")
        for query, chance in enumerate(np.where(counts == 0, unseen, 0.0))
    ]
    worst = min(tests, key=lambda one: one.log_chance)
    if worst.log_chance >= log(SUITE.level("answers", 2 * len(tests))):
        return None
    words = (
        f"{worst.words}, {worst.count} were not the likeliest label, and the stated noise implies {worst.expected:.3g}"
    )
    return ANSWERED.failed(words, float(worst.count), worst.expected, unit=IN_WITNESS)
