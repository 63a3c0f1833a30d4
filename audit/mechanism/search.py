"""Search for the event that proves most about a mechanism, in pilot trials that the bound does not count.

Rounds of equal cost, so that a pilot's luck does not decide and weak pairs of inputs cost little: each round halves
the number of pairs and doubles the trials of those that are left (successive halving: Karnin, Koren, Somekh 2013).
Scores are learnt on one half of the trials and ranked on the other. On the last two pairs slow scores are learnt too,
and fresh trials choose among the best and fix the thresholds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray
from ..exact import refuse_lost
from ..power.cut import CountingPlan
from .candidates import candidates
from .event import Event, Given, check_alone, fix_event
from .score import CountedScore, Counts, Score
from .trial_stream import Mechanism, Stream, TrialPurpose, open_stream

# A pilot has half as many trials as are counted, within limits; 2^22 values of it fit into memory.
_SHARE, _FEWEST, _MOST, _VALUES = 2, 40, 2**20, 2**22
# Pairs of inputs that are left for the last rounds, scores kept of each, and scores among which fresh trials choose.
_PAIRS, _SCORES, _FINALISTS = 2, 4, 6
# Of more scores, a part of the trials finds the best, which are compared on all.
_COMPARED, _PART = 8, 4


_Streams = tuple[Stream, Stream]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The event that the search found, the two streams of its pair of inputs, and how many pairs were looked at."""

    streams: tuple[Stream, Stream]
    event: Event
    pairs: int


def find_event(
    mechanism: Mechanism,
    pairs: Sequence[tuple[Any, Any]],
    plan: CountingPlan,
    *,
    seed: int,
    batched: bool,
    pilot: int | None,
    score: Callable[[NDArray[Any]], ArrayLike] | None,
    low_bits: bool,
    coins: bool = False,
) -> Found:
    """Return the pair of inputs and the event that are expected to refute a false claim best.

    ``pilot``: trials per input, on average over the pairs, None for the default. ``score``: the user's own, which only
    needs a threshold. ``low_bits``: look at the lowest bits of floating-point outputs, and at nothing else. ``coins``:
    whether coins may choose the inputs of the counted trials.
    """
    opened = [_open(mechanism, both, pair=at, seed=seed, batched=batched) for at, both in enumerate(pairs)]
    trials = pilot or int(np.clip(plan.trials // _SHARE, _FEWEST, _MOST))
    search = _Search(plan=plan, coins=coins, low_bits=low_bits, inputs=dict(zip(opened, pairs, strict=True)))
    if score is not None:
        given: Score = Given(score)
        check_alone(given, _drawn(opened[0][1], TrialPurpose.PILOT, _FEWEST * 2))
        found = search.best([(both, given) for both in opened], trials)
    else:
        rounds = max(0, math.ceil(math.log2(len(opened) / _PAIRS)))
        share = trials * len(opened) // (rounds + 2)
        for _ in range(rounds):
            opened = search.half(opened, share // len(opened))
        found = search.best(search.finalists(opened, share // len(opened)), share // len(opened))
    return Found(streams=found[0], event=found[1], pairs=len(pairs))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """What all rounds of a search share; ``inputs`` are those of each pair of streams."""

    plan: CountingPlan
    coins: bool
    low_bits: bool
    inputs: dict[_Streams, tuple[Any, Any]]

    def half(self, opened: list[_Streams], trials: int) -> list[_Streams]:
        """The half of the pairs whose best scores promise most."""
        looked = [max(event.cut.promise for event in self._learnt(both, trials, thorough=False)) for both in opened]
        # A stable order, so that pairs of equal promise keep theirs.
        order = sorted(range(len(opened)), key=lambda at: looked[at], reverse=True)
        return [opened[at] for at in order[: (len(opened) + 1) // 2]]

    def finalists(self, opened: list[_Streams], trials: int) -> list[tuple[_Streams, Score]]:
        """The best scores of the last pairs."""
        events = [
            (both, event)
            for both in opened
            for event in sorted(self._learnt(both, trials, thorough=True), key=_promise, reverse=True)[:_SCORES]
        ]
        events.sort(key=lambda found: _promise(found[1]), reverse=True)
        return [(both, event.score) for both, event in events[:_FINALISTS]]

    def best(self, ranked: Sequence[tuple[_Streams, Score]], trials: int) -> tuple[_Streams, Event]:
        """The best of some scores on fresh trials."""
        found = []
        for both in dict.fromkeys(streams for streams, _ in ranked):
            scores = [score for streams, score in ranked if streams is both]
            found += [(both, event) for event in self._fixed(both, scores, TrialPurpose.CHOICE, trials)]
        return max(found, key=lambda one: _promise(one[1]))

    def _learnt(self, both: _Streams, trials: int, *, thorough: bool) -> list[Event]:
        """Scores learnt on one part of some trials, with the thresholds and the promise that the rest gives them."""
        learning = max(2, trials // 2)
        fitted = min(learning, _VALUES // max(1, int(np.prod(both[0].shape))))
        nonmember, member = (_drawn(side, TrialPurpose.PILOT, fitted) for side in both)
        scores = list(candidates(member, nonmember, self.inputs[both], thorough=thorough, low_bits=self.low_bits))
        # Apart, because a score looks better on the trials that it was fitted to than on new ones.
        ranking = trials - learning
        if len(scores) > _COMPARED:
            few = self._fixed(both, scores, TrialPurpose.RANKING, ranking // _PART)
            scores = [event.score for event in sorted(few, key=_promise, reverse=True)[:_COMPARED]]
        if learning > fitted:
            scores = _counted(both, scores, learning)
        return self._fixed(both, scores, TrialPurpose.RANKING, ranking)

    def _fixed(self, both: _Streams, scores: Sequence[Score], purpose: TrialPurpose, trials: int) -> list[Event]:
        nonmember, member = (_scored(side, scores, purpose, max(2, trials)) for side in both)
        return [
            fix_event(score, within, out, self.plan, coins=self.coins, compared=len(scores))
            for score, within, out in zip(scores, member, nonmember, strict=True)
        ]


def _promise(event: Event) -> tuple[float, float]:
    return event.cut.promise


def _open(mechanism: Mechanism, both: tuple[Any, Any], *, pair: int, seed: int, batched: bool) -> _Streams:
    out, within = (
        open_stream(mechanism, x, world=world, pair=pair, seed=seed, batched=batched) for world, x in enumerate(both)
    )
    if (out.shape, out.text) != (within.shape, within.text):
        kinds = [f"{'strings' if side.text else 'numbers'} of shape {side.shape}" for side in (out, within)]
        raise ValueError(f"outputs on both inputs must have the same type and shape, got {kinds[0]} and {kinds[1]}")
    return out, within


def _counted(both: _Streams, scores: Sequence[Score], trials: int) -> list[Score]:
    """The scores with the counts of all trials, where they are made of counts."""
    tables = {at: score for at, score in enumerate(scores) if isinstance(score, CountedScore)}
    sides: list[dict[int, Counts]] = []
    for side in both:
        total: dict[int, Counts] = {}
        for outputs in side.draw(TrialPurpose.PILOT, trials):
            for at, score in tables.items():
                counts = score.count(outputs)
                total[at] = list(map(np.add, total[at], counts)) if at in total else counts
        sides.append(total)
    return [
        tables[at].counted(sides[1][at], sides[0][at]) if at in tables else score for at, score in enumerate(scores)
    ]


def _scored(side: Stream, scores: Sequence[Score], purpose: TrialPurpose, trials: int) -> list[FloatArray]:
    """The scores of some trials; only these are kept."""
    chunks = [[score.score(outputs) for score in scores] for outputs in side.draw(purpose, trials)]
    return [np.concatenate(values) for values in zip(*chunks, strict=True)]


def _drawn(side: Stream, purpose: TrialPurpose, trials: int) -> NDArray[Any]:
    chunks = list(side.draw(purpose, trials))
    joined = np.concatenate(chunks)
    # Chunks of different number types become floats when joined, which may merge whole numbers above 2^53.
    if joined.dtype.kind == "f":
        refuse_lost("outputs", chunks)
    return joined
