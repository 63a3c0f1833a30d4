"""Bound the epsilon of a vertical federation from independent runs under two data sets that differ in one person.

Scores are learned on runs of their own. Linear discriminants: one of the messages about that person, and one of all
messages, because a person's data may show in the messages about other people. And, only where those runs show that it
breaks the claim, a score of values, places and repetitions, to which a linear score is blind.

No bound holds where the runs of one block depend on each other, such as by one noise for all; that is tested first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency
from ...audit.estimators.joint_point import best_bound
from ...audit.evidence import MembershipScores, Setting
from ...audit.measurement import Measurement
from ...audit.mechanism.trial_stream import MOST_TESTED, dependence
from ...audit.supplied.chosen import measure_scores
from ...fl.streams import Runs
from .case import VerticalCase
from .pairs import PersonPair
from .scores import clearest_event, discriminant

BLOCK = 250
"""Runs made at once; part of the streams' names, so another number gives other runs."""
LEAST, MOST_COMPARED = 60, 3000
"""Runs per arm, at least, and runs in all, by which pairs of data sets are compared; not more than a block each."""
MOST_KEPT = 8_000_000
"""Numbers kept of one arm's runs from which the scores are learned; longer runs teach the scores in smaller number."""
_GUARD = 2**20
"""Number of the first of the blocks that are tested for dependence, beyond those of any audit."""


class DependentRuns(ValueError):
    """The error for runs that were made together and depend on each other, so that no bound from them holds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tested:
    """A score of the ``part``-th array of what an observer received, and what it is in words."""

    part: int
    score: Callable[[FloatArray], FloatArray]
    words: str


def measured_in_runs(
    case: VerticalCase, pairs: Sequence[PersonPair], *, replicas: int, pilot: int, alpha: float
) -> Measurement:
    """Return a lower bound on epsilon from independent runs: the best of the bounds by several scores, which share
    alpha.

    ``pairs``: of data sets, among which a first block of each is compared, of those that differ as the claim's
    adjacency says. ``replicas``: runs per arm; ``pilot``: further runs per arm, from which the scores are learned.

    Raises:
        DependentRuns: if the scores show that runs of one block, or all blocks, share noise.
    """
    # Neither this choice nor the scores depend on the runs that are tested: those are of other blocks.
    claim, allowed = case.claim, case.covered(pairs)
    pair = best_separated(case, allowed or pairs)
    trained = partial(observed_blocks, case, pair)
    taught = [_kept(trained(arm, pilot, 0)) for arm in (0, 1)]
    about = ("the messages about this person", "all messages") if len(taught[0]) > 1 else ("all that is published",)
    scores = [
        _Tested(part=part, score=discriminant(out, within), words=f"a linear discriminant of {about[part]}")
        for part, (out, within) in enumerate(zip(*taught, strict=True))
    ]
    # Among the messages about the person, whose data show there first.
    further = clearest_event(taught[0][0], taught[1][0], claim, trials=replicas // 2, alpha=alpha / (len(scores) + 1))
    if further is not None:
        scores.append(_Tested(part=0, score=further.score.score, words=f"{further}, of {about[0]}"))
    check_apart(lambda arm, block, runs: np.stack(_scored(scores, trained(arm, runs, block)), axis=1))
    first = -(-pilot // BLOCK)
    tested = [_scored(scores, trained(arm, replicas, first)) for arm in (0, 1)]
    # What the runs are evidence of, which a claim of another adjacency does not cover.
    adjacency = claim.adjacency if allowed else Adjacency.REPLACE_ONE
    setting = replace(Setting.claimed(claim), adjacency=adjacency, rounds=case.epochs)
    bounds = [
        measure_scores(
            MembershipScores(within, out, setting),
            claim,
            alpha=alpha / len(scores),
            witness=f"{pair.witness(claim)}, {replicas} runs per arm, score: {one.words}",
        )
        for out, within, one in zip(*tested, scores, strict=True)
    ]
    return best_bound(bounds)


def check_apart(scored: Callable[[int, int, int], FloatArray]) -> None:
    """Raise DependentRuns if runs of either arm depend on each other, because one noise draw would then count as many.

    ``scored``: (arm, number of a block, runs) -> (runs, scores), of blocks far beyond those of any audit.
    """
    for arm in (0, 1):
        start = _GUARD + 2 * BLOCKS * arm

        def numbers(block: int, runs: int, arm: int = arm, start: int = start) -> FloatArray:
            return scored(arm, start + block, runs)

        words = dependent(numbers)
        if words:
            raise DependentRuns(words)


def best_separated(case: VerticalCase, pairs: Sequence[PersonPair]) -> PersonPair:
    """Return the pair of data sets that a score separates best, by the difference of its means over its standard
    deviation.
    """
    if len(pairs) == 1:
        return pairs[0]
    size = min(BLOCK, max(LEAST, MOST_COMPARED // (2 * len(pairs))))
    found = [
        # Both arms draw the same noise, so that their difference is free of most of it.
        _separation(*(next(observed_blocks(case, pair, arm, size, 0, streams_of=0)) for arm in (0, 1)))
        for pair in pairs
    ]
    return pairs[int(np.argmax(found))]


def _separation(out: list[FloatArray], within: list[FloatArray]) -> float:
    """The largest separation by a score that is learned on one half of the runs and tested on the other half."""
    half, found = len(out[0]) // 2, []
    for zero, one in zip(out, within, strict=True):
        score = discriminant(zero[:half], one[:half])
        scores = score(zero[half:]), score(one[half:])
        deviation = np.sqrt(np.mean([part.var() for part in scores]))
        found.append(float(scores[1].mean() - scores[0].mean()) / max(float(deviation), 1e-12))
    return max(found)


def _kept(blocks: Iterator[list[FloatArray]]) -> list[FloatArray]:
    """All runs of as many blocks as may be kept: (runs, numbers) about the person, and in all."""
    kept: list[list[FloatArray]] = []
    for parts in blocks:
        kept.append(parts)
        if (len(kept) + 1) * max(part.size for part in parts) > MOST_KEPT:
            break
    return [np.concatenate(some) for some in zip(*kept, strict=True)]


def _scored(scores: list[_Tested], blocks: Iterator[list[FloatArray]]) -> list[FloatArray]:
    """The scores of all runs, by each score; the runs themselves are not kept."""
    found = [[one.score(parts[one.part]) for one in scores] for parts in blocks]
    return [np.concatenate(some) for some in zip(*found, strict=True)]


def observed_blocks(
    case: VerticalCase, pair: PersonPair, arm: int, count: int, first: int, *, streams_of: int | None = None
) -> Iterator[list[FloatArray]]:
    """Yield what the observer received in ``count`` runs of one arm, block by block: see ``VerticalCase.received``.

    ``first``: number of the first block; each block draws by streams of its own, and so does each arm, or each
    ``streams_of``.
    """
    for number in range(-(-count // BLOCK)):
        size = min(BLOCK, count - number * BLOCK)
        runs = Runs(replicas=size, block=first + number, arm=arm if streams_of is None else streams_of)
        yield [part.double().numpy() for part in case.received(pair, arm, runs=runs)]


BLOCKS, ROWS = 16, 16
"""Blocks of a series, and runs of each."""
LEVEL = 1e-6
"""Probability, per number, that one series of independent runs is taken for dependent; two series must agree."""
_TWICE = 8
"""Blocks in which a number occurs twice, while none occurs in two blocks; of independent runs at most 17^-8 likely."""
_DIGITS = 9
"""Digits of the numbers that are compared."""
_REMEDY = "a hook must draw separate noise for each replica (the first dimension of values)"


def dependent(numbers: Callable[[int, int], FloatArray]) -> str:
    """Return a description of how runs depend on each other; empty string if nothing shows that they do.

    ``numbers``: (number of a block, runs) -> (runs, numbers), of blocks that were not used yet. At most
    ``call_effect.MOST_TESTED`` numbers are looked at.
    """
    first = _series(numbers, 0)
    if (first == first[0]).all() and (first[0] != first[0][0]).any():
        return (
            "the defense draws no noise, or the same noise in all blocks of runs: a hook must draw it from the "
            "generator that it receives"
        )
    if any(_repeats(column) for column in np.moveaxis(first, 2, 0)):
        return f"runs of one block have the same noise: {_REMEDY}"
    level = LEVEL * min(MOST_TESTED, first.shape[2])
    if dependence(lambda series: _series(numbers, series) if series else first, level) is not None:
        return f"runs of one block depend on each other: {_REMEDY}"
    return ""


def _series(numbers: Callable[[int, int], FloatArray], series: int) -> FloatArray:
    found = np.nan_to_num(np.stack([numbers(series * BLOCKS + block, ROWS) for block in range(BLOCKS)]))
    # Equal runs may differ in their last digits, by their places in a block.
    return np.asarray(np.round(found / np.maximum(np.abs(found).max((0, 1)), 1e-300), _DIGITS))


def _repeats(column: FloatArray) -> bool:
    """Whether numbers ``(blocks, runs)`` occur twice in many blocks, and none occurs in two."""
    distinct = [np.unique(block) for block in column]
    within = sum(len(block) < column.shape[1] for block in distinct)
    return within >= _TWICE and len(np.unique(column)) == sum(len(block) for block in distinct)
