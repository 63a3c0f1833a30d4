"""Check a privacy claim against the output of a hook, drawn many times under each of two neighbouring data sets.

Nothing is assumed about the noise, nor about what is done after it: numbers may be cut off, rounded, left out or
scaled. An event of the whole output is learned on some draws and counted on others, as in the audit of a mechanism.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....audit.arrays import FloatArray
from ....audit.check import DRAWN, CheckResult
from ....audit.ledger import SUITE
from ....audit.measurement import Measurement
from ....audit.mechanism.mechanism import audit_mechanism
from ....audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from ....fl.streams import Streams
from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ..case import VerticalCase
from .tape import Call, NotJudged, again, recorded

_TRIALS, _PILOT = 6000, 3000
"""Draws under each data set that are counted, and from which the event is learned."""
_NUMBERS, _LOOKS = 64, 32
"""Numbers that are judged, those that the data move most, and pairs of equal draws that show which these are."""
_MOST = 500_000_000
"""Numbers that hooks draw at most under both data sets, all draws together."""

Pair = tuple[Call, Call]
_Chosen = list[tuple[Pair, Tensor]]
"""Calls under both data sets, and the places of the numbers that are judged."""


def drawn_check(case: VerticalCase, pairs: Sequence[Pair]) -> CheckResult:
    """Return the result of the check of randomly drawn messages. ``pairs``: calls of hooks whose outputs may reach the
    observer, each recorded in two runs with equal releases.

    Each message is drawn given the recorded releases before it, and noise that depends on earlier calls is not judged.
    """
    try:
        chosen = _chosen(case, pairs)
        measured = _measured(case, chosen)
    except NotJudged as why:
        return DRAWN.skipped(str(why))
    return DRAWN.at_most(
        measured.epsilon_low,
        case.claim.epsilon,
        unit="epsilon",
        witness=f"{len(chosen)} messages, drawn {_TRIALS} times under each of two neighbouring data sets, given all "
        "earlier releases",
    )


def _measured(case: VerticalCase, chosen: _Chosen) -> Measurement:
    def mechanism(arms: FloatArray, rng: np.random.Generator) -> FloatArray:
        # All rows of a call are of one data set.
        arm = int(arms[0, 0])
        calls = [(pair[arm], places) for pair, places in chosen]
        drawn = [again(case.protection, call, rng, replicas=len(arms)).flatten(1)[:, places] for call, places in calls]
        return torch.cat(drawn, dim=1).double().numpy()

    # As many draws are made at once as inputs fit into memory, so each input is as large as what a hook returns.
    size = max(_size(pair[0]) for pair, _ in chosen)
    try:
        found = audit_mechanism(
            mechanism,
            case.claim,
            inputs=(np.zeros(size), np.ones(size)),
            trials=_TRIALS,
            pilot=_PILOT,
            alpha=SUITE.level("vertical messages"),
            batched=True,
        ).measurement
    except ValueError as why:
        raise NotJudged(f"the output of a hook cannot be drawn again by itself: {why}") from why
    if found is None:
        raise NotJudged("the draws show no event")
    return found


def _chosen(case: VerticalCase, pairs: Sequence[Pair]) -> _Chosen:
    """The calls that the data move, and the places of the numbers that they move most."""
    hooks = {one.hook for one, _ in pairs}
    judged = [pair for pair in pairs if _is_judged(case, pair[0], hooks)]
    if not judged:
        raise NotJudged("no hook returns what the adversary receives")
    for one, _ in judged:
        recorded(case.protection, one)
    unlike = [pair for pair in judged if not _are_alike(*pair)]
    numbers = 2 * (_TRIALS + _PILOT) * sum(_size(one) for one, _ in unlike)
    if numbers > _MOST:
        raise NotJudged(f"this check would draw {numbers:.1g} numbers from hooks, more than its limit of {_MOST:.1g}")
    apart = [(pair, _apart(case.protection, pair)) for pair in unlike]
    moving = [(pair, moves) for pair, moves in apart if bool(moves.any())]
    if not moving:
        raise NotJudged("no message differs between the two neighbouring data sets")
    most = max(1, _NUMBERS // len(moving))
    return [(pair, _largest(moves, most)) for pair, moves in moving]


def _is_judged(case: VerticalCase, call: Call, hooks: set[str]) -> bool:
    """Whether a call returns what the law describes or, without a law, what the observer receives."""
    claim, law = case.claim, case.law
    if law is not None:
        # The public receives no labels, but models that were trained with them.
        return call.hook in (law.noised, "bottom_sum") and (law.noise is not None or claim.observer != FINAL_MODEL)
    if claim.observer == ACTIVE_PARTY:
        return call.hook == "embeddings"
    if claim.observer == PASSIVE_PARTY and "gradients" not in hooks:
        # Where the logits are the sum of the embeddings, residuals are the gradients.
        return call.hook == "residuals" and any(context.plan.network.summed for context in _contexts(call))
    return claim.observer == PASSIVE_PARTY and call.hook == "gradients"


def _contexts(call: Call) -> Iterator[VerticalContext]:
    return (fact for fact in call.rest if isinstance(fact, VerticalContext))


def _are_alike(one: Call, other: Call) -> bool:
    """Whether the hook is given the same, so that equal draws return the same."""
    given: list[list[Any]] = [[call.values, *(context.targets for context in _contexts(call))] for call in (one, other)]
    return all(first is second or torch.equal(first, second) for first, second in zip(*given, strict=True))


def _size(call: Call) -> int:
    return max(call.values.numel(), call.output.numel())


def _apart(protection: VerticalProtection, pair: Pair) -> Tensor:
    """How far equal draws under both data sets differ, on average for each number: (numbers,)."""
    one, other = (
        again(protection, call, Streams(0).generator("drawn messages"), replicas=_LOOKS).flatten(1) for call in pair
    )
    return torch.nan_to_num(one.double() - other.double()).abs().mean(0)


def _largest(moves: Tensor, most: int) -> Tensor:
    """The places of the largest numbers above 0."""
    order = torch.argsort(moves, descending=True, stable=True)[:most]
    return order[moves[order] > 0]
