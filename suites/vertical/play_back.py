"""Play a defense's randomised outputs back to a federation in which one person's data differ, and see what else moves.

A run is recorded with everything that the hooks with randomness returned. The same run is made again with one label, or
one row, changed, and the hooks return the recorded outputs. What the observer receives must then be the same: else it
depends on the raw data in a way that no noise covers. What the hooks were given in the second run shows how far the
change moves the inputs of the noise: in the person's own row, and in rows of other people.
"""

from copy import deepcopy

import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...audit.claim import Claim, Unit
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from ...fl.streams import Streams
from ...fl.vertical.engine import Planted, Runs, run_vertical
from ...fl.vertical.law import VerticalLaw
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalContext, VerticalProtection
from ...fl.vertical.task import VerticalTask
from .noise_move import move_checks
from .pairs import Pair
from .received import Received, all_numbers
from .tape import Call, Taped, overrides

RELEASED = "released noise alone"
HOOKS = {Unit.LABEL: ("targets", "residuals", "gradients"), Unit.SAMPLE: ("columns", "embeddings", "bottom_sum")}
"""The hooks through which a defense may randomise what depends on the unit."""


def play_back_checks(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    pair: Pair,
    *,
    law: VerticalLaw | None,
) -> tuple[CheckResult, ...]:
    """Return the results of all checks of a claim about one label, or about one person's columns at the first party.

    ``law``: the public description of the noise, where the defense publishes one.
    """
    names = tuple(hook for hook in HOOKS.get(claim.unit, HOOKS[Unit.SAMPLE]) if overrides(protection, hook))
    # Copies: what one run leaves in an object must not reach another.
    first = Taped(inner=deepcopy(protection), names=names)
    one = _received(claim, task, plan, first, streams, pair.plant(0, 1), pair.person)
    second = Taped(inner=deepcopy(protection), names=names, tape=first.calls)
    other = _received(claim, task, plan, second, streams, pair.plant(1, 1), pair.person)
    pairs = list(zip(first.calls, second.calls, strict=True))
    return (_released(claim, pair, names, one, other, pairs), *move_checks(claim, protection, pairs, law))


def _released(
    claim: Claim, pair: Pair, names: tuple[str, ...], one: Tensor, other: Tensor, pairs: list[tuple[Call, Call]]
) -> CheckResult:
    """Compare what the observer received in both runs, whose released outputs are the same."""
    seen = {ACTIVE_PARTY: "embeddings", PASSIVE_PARTY: "gradients"}.get(claim.observer)
    if seen in names and any(_others_move(first, second, pair.person) for first, second in pairs):
        # Equal by construction: the observer receives the played outputs themselves, and their inputs are what counts.
        words = f"the adversary receives the outputs of {seen}, whose inputs move in rows of other people"
        return CheckResult(name=RELEASED, passed=None, witness=words)
    return CheckResult.at_most(
        RELEASED,
        _difference(one, other),
        0.0,
        unit="largest difference",
        witness=f"one person's data changed, outputs of {', '.join(names) or 'no hook'} the same",
    )


def _others_move(one: Call, other: Call, person: int) -> bool:
    """Whether the inputs of a call differ in rows of other people."""
    people = next((fact.people for fact in one.rest if isinstance(fact, VerticalContext)), None)
    if one.hook == "bottom_sum" or people is None:
        return False
    return bool((one.values != other.values)[:, people != person].any())


def _received(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    planted: Planted,
    person: int,
) -> Tensor:
    """All numbers that the observer receives, flat."""
    seen = Received(observer=claim.observer, person=person)
    final = run_vertical(task, plan, protection, streams, runs=Runs(), planted=planted, recorders=[seen])
    return all_numbers(final)[0] if claim.observer == FINAL_MODEL else torch.cat(seen.everything, dim=1)[0]


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, 0 where two numbers are equal or both not finite."""
    same = (one == other) | (~torch.isfinite(one) & ~torch.isfinite(other))
    return 0.0 if bool(same.all()) else float(torch.nan_to_num(one - other).abs()[~same].max().clamp_min(1e-30))
