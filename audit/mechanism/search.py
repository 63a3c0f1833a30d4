"""Search for the event that proves most about a mechanism, in pilot trials that the bound does not count.

Three stages, so that a pilot's luck does not decide: a first look at every pair of inputs keeps a few; on these,
scores are learnt on one part of a pilot and ranked on the rest; fresh trials choose among the best of them and fix
the threshold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray
from ..exact import refuse_lost
from ..power.cut import CountingPlan
from .candidates import candidates
from .event import Event, Given, Score, check_alone, fix_event
from .trial_stream import Mechanism, Stream, TrialPurpose, open_stream

# A pilot has half as many trials as are counted, within limits; 2^22 values of it fit into memory.
_SHARE, _FEWEST, _MOST, _VALUES = 2, 40, 2**20, 2**22
# Pairs of inputs and scores that are kept after each stage.
_PAIRS, _SCORES, _FINALISTS = 2, 2, 4
_PART = 2
"""The first look at a pair takes half of a pilot, and so does learning."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The event that the search found, the two streams of its pair of inputs, and how many pairs were looked at."""

    streams: tuple[Stream, Stream]
    event: Event
    pairs: int


_Streams = tuple[Stream, Stream]


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
) -> Found:
    """Return the pair of inputs and the event that are expected to refute a false claim best.

    ``pilot``: trials per input and pair, None for the default. ``score``: the user's own, which only needs a threshold.
    ``low_bits``: look at the lowest bits of floating-point outputs, and at nothing else.
    """
    opened = [_open(mechanism, both, pair=at, seed=seed, batched=batched) for at, both in enumerate(pairs)]
    inputs = dict(zip(opened, pairs, strict=True))
    if score is not None:
        ranked: list[tuple[_Streams, Score]] = [(both, Given(score)) for both in opened]
        check_alone(ranked[0][1], _drawn(opened[0][1], TrialPurpose.LOOK, _FEWEST * 2))
        return _chosen(ranked, plan, pilot, len(pairs), share=1.0)
    if len(opened) > _PAIRS:
        looked = [
            max(
                event.cut.promise
                for event in _learnt(both, inputs[both], plan, pilot, thorough=False, low_bits=low_bits)
            )
            for both in opened
        ]
        # A stable order, so that pairs of equal promise keep theirs.
        opened = [opened[at] for at in sorted(range(len(opened)), key=lambda at: looked[at], reverse=True)[:_PAIRS]]
    events = [
        (event, both)
        for both in opened
        for event in _best(_learnt(both, inputs[both], plan, pilot, thorough=True, low_bits=low_bits))
    ]
    events.sort(key=lambda found: found[0].cut.promise, reverse=True)
    return _chosen([(both, event.score) for event, both in events[:_FINALISTS]], plan, pilot, len(pairs), share=0.5)


def _open(mechanism: Mechanism, both: tuple[Any, Any], *, pair: int, seed: int, batched: bool) -> _Streams:
    out, within = (
        open_stream(mechanism, x, world=world, pair=pair, seed=seed, batched=batched) for world, x in enumerate(both)
    )
    if (out.shape, out.text) != (within.shape, within.text):
        kinds = [f"{'strings' if side.text else 'numbers'} of shape {side.shape}" for side in (out, within)]
        raise ValueError(f"outputs on both inputs must have the same type and shape, got {kinds[0]} and {kinds[1]}")
    return out, within


def _learnt(
    both: _Streams, inputs: tuple[Any, Any], plan: CountingPlan, pilot: int | None, *, thorough: bool, low_bits: bool
) -> list[Event]:
    """Scores learnt on two thirds of some trials, with the threshold and the promise that the rest gives them."""
    size = max(1, int(np.prod(both[0].shape)))
    n = max(4, min(_trials(plan, pilot) // _PART, _VALUES // size))
    purpose = TrialPurpose.PILOT if thorough else TrialPurpose.LOOK
    nonmember, member = (_drawn(side, purpose, n) for side in both)
    # Apart, because a score looks better on the trials that it was fitted to than on new ones.
    first = n * 2 // 3
    found = []
    for score in candidates(member[:first], nonmember[:first], inputs, thorough=thorough, low_bits=low_bits):
        found.append(fix_event(score, score.score(member[first:]), score.score(nonmember[first:]), plan))
    return found


def _best(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.cut.promise, reverse=True)[:_SCORES]


def _chosen(
    ranked: Sequence[tuple[_Streams, Score]], plan: CountingPlan, pilot: int | None, pairs: int, *, share: float
) -> Found:
    """The best of some scores on fresh trials, of which only the scores are kept."""
    n = max(2, int(_trials(plan, pilot) * share))
    best: Found | None = None
    for both in dict.fromkeys(streams for streams, _ in ranked):
        scores = [score for streams, score in ranked if streams is both]
        values = [_scored(side, scores, n) for side in both]
        for at, score in enumerate(scores):
            event = fix_event(score, values[1][at], values[0][at], plan)
            if best is None or event.cut.promise > best.event.cut.promise:
                best = Found(streams=both, event=event, pairs=pairs)
    assert best is not None
    return best


def _scored(side: Stream, scores: Sequence[Score], trials: int) -> list[FloatArray]:
    chunks = [[score.score(outputs) for score in scores] for outputs in side.draw(TrialPurpose.CHOICE, trials)]
    return [np.concatenate(values) for values in zip(*chunks, strict=True)]


def _trials(plan: CountingPlan, pilot: int | None) -> int:
    return pilot or int(np.clip(plan.trials // _SHARE, _FEWEST, _MOST))


def _drawn(side: Stream, purpose: TrialPurpose, trials: int) -> NDArray[Any]:
    chunks = list(side.draw(purpose, trials))
    joined = np.concatenate(chunks)
    # Chunks of different number types become floats when joined, which may merge whole numbers above 2^53.
    if joined.dtype.kind == "f":
        refuse_lost("outputs", chunks)
    return joined
