"""Hold what a hook returns, drawn many times under each of two data sets, against a claim.

Nothing is assumed about the noise, nor about what is done after it: numbers may be cut off, rounded, left out or
scaled. An event of the whole output is learned on some draws and counted on others, as in the audit of a mechanism.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.check_result import CheckResult
from ...audit.claim import Claim
from ...audit.mechanism.mechanism import audit_mechanism
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from ...fl.streams import Streams
from ...fl.vertical.law import VerticalLaw
from ...fl.vertical.protection import VerticalContext, VerticalProtection
from .tape import Call, again

DRAWN = "drawn messages"
ALPHA = 1e-6
"""Probability, at most, that the draws of a claim that holds fail the check."""
_TRIALS, _PILOT = 6000, 3000
"""Draws under each data set that are counted, and from which the event is learned."""
_NUMBERS, _LOOKS = 64, 32
"""Numbers that are judged, those that the data move most, and pairs of equal draws that show which these are."""

Pairs = Sequence[tuple[Call, Call]]


def drawn_check(claim: Claim, protection: VerticalProtection, pairs: Pairs, law: VerticalLaw | None) -> CheckResult:
    """Return the result of the check; ``pairs``: the calls of two runs with equal releases.

    Each message is drawn given the recorded releases before it, and noise that depends on earlier calls is not judged.
    """
    judged = [pair for pair in pairs if _is_judged(claim, pair[0], law, {one.hook for one, _ in pairs})]
    if not judged:
        return CheckResult(name=DRAWN, passed=None, witness="no hook returns what the adversary receives")
    if not all(_returns_again(protection, one) for one, _ in judged):
        words = "what a hook returns depends on earlier calls, and cannot be drawn alone"
        return CheckResult(name=DRAWN, passed=None, witness=words)
    most = max(1, _NUMBERS // len(judged))
    chosen = [(pair, _moved(protection, pair, most)) for pair in judged]
    chosen = [(pair, places) for pair, places in chosen if len(places)]
    if not chosen:
        return CheckResult(name=DRAWN, passed=None, witness="the two data sets move no message")

    def mechanism(arms: FloatArray, rng: np.random.Generator) -> FloatArray:
        # All rows of a call are of one data set.
        arm = int(arms[0])
        drawn = [again(protection, pair[arm], rng, replicas=len(arms)).flatten(1)[:, places] for pair, places in chosen]
        return torch.cat(drawn, dim=1).double().numpy()

    try:
        measured = audit_mechanism(
            mechanism, claim, inputs=(0.0, 1.0), trials=_TRIALS, pilot=_PILOT, alpha=ALPHA, batched=True
        ).measurement
    except ValueError as why:
        return CheckResult(name=DRAWN, passed=None, witness=f"what a hook returns cannot be drawn alone: {why}")
    if measured is None:
        return CheckResult(name=DRAWN, passed=None, witness="the draws show no event")
    return CheckResult.at_most(
        DRAWN,
        measured.epsilon_low,
        claim.epsilon,
        unit="epsilon",
        witness=f"{len(chosen)} messages, {_TRIALS} draws under each data set, given what was released before them",
    )


def _is_judged(claim: Claim, call: Call, law: VerticalLaw | None, hooks: set[str]) -> bool:
    """Whether a call returns what the law describes or, without a law, what the observer receives."""
    if call.hook == "gradients" and claim.observer == PASSIVE_PARTY and call.rest[0] != 0:
        return False
    if law is not None:
        # The public receives no labels, but models that were trained with them.
        return call.hook in (law.noised, "bottom_sum") and (law.noise is not None or claim.observer != FINAL_MODEL)
    if claim.observer == ACTIVE_PARTY:
        return call.hook == "embeddings" and call.rest[0] == 0
    if claim.observer == PASSIVE_PARTY and "gradients" not in hooks:
        # Where the logits are the sum of the embeddings, residuals are the gradients.
        return call.hook == "residuals" and _summed(call.rest)
    return claim.observer == PASSIVE_PARTY and call.hook == "gradients"


def _summed(facts: tuple[Any, ...]) -> bool:
    return any(isinstance(fact, VerticalContext) and fact.plan.network.summed for fact in facts)


def _returns_again(protection: VerticalProtection, call: Call) -> bool:
    """Whether a copy of the protection returns what was recorded, without the calls before."""
    return torch.equal(torch.nan_to_num(again(protection, call, deepcopy(call.rng))), torch.nan_to_num(call.output))


def _moved(protection: VerticalProtection, pair: tuple[Call, Call], most: int) -> Tensor:
    """The places of the numbers that differ most between equal draws under both data sets."""
    one, other = (
        again(protection, call, Streams(0).generator("drawn messages"), replicas=_LOOKS).flatten(1) for call in pair
    )
    apart = torch.nan_to_num(one.double() - other.double()).abs().mean(0)
    order = torch.argsort(apart, descending=True, stable=True)[:most]
    return order[apart[order] > 0]
