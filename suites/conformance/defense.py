"""Conformance checks of defenses of every kind of federation."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Claim
from ...defenses.defense import Defense, Prepared
from ...defenses.transfer.defense import PreparedTransfer, TransferDefense
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ...fl.engine import run_federation
from ...fl.hooks import overrides
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.rounds import Rounds, given_rows, sums_reports
from ...fl.streams import Runs, Streams, normal
from ...fl.task import Task
from ...fl.training.local import Batch
from ...fl.transfer.engine import run_transfer
from ...fl.transfer.protection import TransferProtection
from ...fl.vertical.engine import Planted, StepEvent, run_vertical
from ...fl.vertical.protection import VerticalProtection
from ..mutation.versions import FederatedVersions
from ..vertical.case import all_numbers
from ..vertical.runs import dependent
from .check import (
    CheckedPart,
    ConformanceCheck,
    built,
    can_be_sent,
    equal,
    no_global_randomness,
    require,
    require_refused,
)
from .toys import client_plans, toy_transfer, vertical_plans

_REPLICAS = 3
_ROUNDING = 1e-3
"""Largest difference of two aggregates, in the largest number, that rounding in single precision explains."""
_SUMS = 8
"""Random sums of all messages and parameters by which runs are compared."""


@dataclass(frozen=True, kw_only=True)
class DefenseKind:
    """A kind of federation (horizontal, vertical or transfer), and how defenses in it are checked.

    Args:
        plans: (defense) -> tasks and plans that are tried in turn, until the defense accepts one.
        looked_at: of how many of these plans the claims are checked.
        covered: the rounds of a plan that a claim may cover.
        trained: (task, plan, protection, runs) -> the final models, ``(runs, numbers)``.
        keeps: whether a protection may keep what it drew from one call to the next.
    """

    prepared: type[Any]
    protection: type[Any]
    plans: Callable[..., Iterator[tuple[Any, Any]]]
    looked_at: int = 1
    covered: Callable[[Any], int]
    trained: Callable[[Any, Any, Any, Runs], Tensor]
    keeps: bool = False


CLIENTS = DefenseKind(
    prepared=Prepared,
    protection=Protection,
    plans=client_plans,
    covered=lambda plan: plan.rounds,
    trained=lambda task, plan, protection, runs: run_federation(
        task, plan, protection, Streams(1), batch=Batch(replicas=runs.replicas, block=runs.block)
    ),
)
VERTICAL = DefenseKind(
    prepared=VerticalPrepared,
    protection=VerticalProtection,
    plans=vertical_plans,
    looked_at=4,
    covered=lambda plan: plan.epochs,
    trained=lambda task, plan, protection, runs: all_numbers(
        run_vertical(task, plan, protection, Streams(1), runs=runs)
    ),
    keeps=True,
)
TRANSFERS = DefenseKind(
    prepared=PreparedTransfer,
    protection=TransferProtection,
    plans=lambda _: iter([toy_transfer()]),
    covered=lambda plan: 1,
    trained=lambda task, plan, protection, runs: run_transfer(task, plan, protection, Streams(1), runs=runs),
)


def _kind_of(defense: Any) -> DefenseKind:
    if isinstance(defense, VerticalDefense):
        return VERTICAL
    return TRANSFERS if isinstance(defense, TransferDefense) else CLIENTS


def prepares(subject: CheckedPart) -> str | None:
    """It prepares a protection and claims for a plan, or refuses the plan with a ValueError."""
    defense = subject.make()
    kind, first = _kind_of(defense), _prepared(defense)
    for _, plan, prepared in islice(_accepted(defense), kind.looked_at):
        covered = kind.covered(plan)
        require(
            all(claim.rounds <= covered for claim in prepared.claims),
            f"a claim must not cover more than the {covered} rounds of the plan",
        )
        laws = set(getattr(prepared, "laws", {})) <= {claim.claim_id for claim in prepared.claims}
        require(laws, "a law belongs to no claim: key each law by the claim_id of its claim")
    words = "; ".join(claim.describe() for claim in first[2].claims) or "states no claim"
    return f"under {type(first[1].algorithm).__name__}: {words}" if kind is CLIENTS else words


def claims_repeat(subject: CheckedPart) -> None:
    """Its claims are the same at every preparation and survive being written and read."""
    claims, again = (_prepared(subject.make())[2].claims for _ in range(2))
    require(claims == again, "a second call of prepare for the same plan states different claims")
    for claim in claims:
        read = Claim.from_dict(json.loads(json.dumps(claim.to_dict())))
        require(read.claim_id == claim.claim_id, "a claim changes when it is written to a file and read again")
        require(claim.curve_shortfall() <= 1e-3, "the defense's trade-off curve is weaker than its epsilon and delta")


def trains(subject: CheckedPart) -> None:
    """A small federation trains under it, with finite numbers of the right shape."""
    defense = subject.make()
    task, plan, prepared = _prepared(defense)
    final = _trained(defense, task, plan, prepared)
    require(len(final) == _REPLICAS, f"the models of {_REPLICAS} replicas have shape {tuple(final.shape)}")
    require(final.dtype == torch.float32, f"the models are {final.dtype}, not torch.float32")
    require(bool(final.isfinite().all()), "a model holds NaN or infinity")


def deterministic(subject: CheckedPart) -> None:
    """Equal streams give equal runs, no global generator is used, and it keeps nothing between runs."""
    defense = subject.make()
    task, plan, prepared = _prepared(defense)
    before = copy.deepcopy(vars(prepared.protection))
    with no_global_randomness():
        first, again = (_trained(defense, task, plan, prepared) for _ in range(2))
    require(
        equal(first, again),
        "two runs with equal random streams differ: it keeps state, or draws from another generator",
    )
    kept = _kind_of(defense).keeps or equal(before, vars(prepared.protection))
    require(kept, "the defense's protection changed during the run")


def replicas_first(subject: CheckedPart) -> str | None:
    """Replicas come first in every tensor, and each has noise of its own."""
    defense = subject.make()
    task, plan, prepared = _prepared(defense)
    noisy = any(claim.epsilon < float("inf") for claim in prepared.claims)
    final = _trained(defense, task, plan, prepared)
    require(
        not noisy or len(np.unique(final.numpy(), axis=0)) == _REPLICAS,
        "two replicas have equal models, so they share their noise",
    )
    return None if noisy else "not checked: it states no claim"


def sums_as_stated(subject: CheckedPart) -> str | None:
    """Where it states what its aggregate needs of the reports, a cohort in blocks has the aggregate of one matrix."""
    task, plan, prepared = _prepared(subject.make(), count=27)
    protection = prepared.protection
    if not sums_reports(protection) or overrides(protection, "local_query"):
        return "not checked: its aggregation needs all reports at once"
    whole, parts = (_aggregate(task, plan, protection, in_blocks=choice) for choice in (False, True))
    far = float((whole - parts).abs().max() / whole.abs().max().clamp_min(1e-12))
    require(
        far <= _ROUNDING,
        f"the aggregate of a cohort in blocks differs by {far:.2g} of its largest number: report must treat each row "
        f"alone and draw row after row, and sums must be what aggregate needs, got {protection.sums!r}",
    )
    return f"{protection.sums}, equal within {far:.1g}"


def _aggregate(task: Task, plan: Plan, protection: Protection, *, in_blocks: bool) -> torch.Tensor:
    """The aggregate of a first round in which all clients take part with random updates."""
    rows = 0.1 * normal(Streams(1).generator("updates"), (1, plan.clients, plan.layout.dim))
    rounds = Rounds(
        plan=plan, protection=protection, streams=Streams(1), rows=given_rows(rows), task=task, closes=False
    )
    (turn,) = rounds.each(1)
    if in_blocks:
        parts = ((turn.updates.of_rows([row]), client) for row, client in enumerate(turn.context.senders))
        turn.sum_in_blocks(((part, replace(turn.context, senders=(client,))) for part, client in parts))
    return turn.aggregate


def claims_hold(subject: CheckedPart) -> str | None:
    """Its messages, noise and published law agree with its claims (the implementation checks of an audit)."""
    defense: Defense = subject.make()
    if defense.control:
        return "not checked: it is a control, which breaks its claim on purpose"
    task, plan, prepared = _prepared(defense, inert=1)
    if not prepared.claims:
        return "not checked: it states no claim"
    versions = FederatedVersions(
        name=subject.name,
        task=task,
        plan=plan,
        correct=prepared,
        broken=None,
        prepare_correct=defense.prepare,
        prepare_broken=defense.prepare,
    )
    found = versions.checks(broken=False, trials=True)
    failed = [result.words for result in found if result.passed is False]
    require(not failed, "; ".join(failed))
    made = [result.name for result in found if result.passed]
    return f"{len(made)} checks: {', '.join(made)}"


def fields_checked(subject: CheckedPart) -> str | None:
    """It refuses an epsilon, delta or clip norm below 0 with a ValueError that names the field."""
    defense: Defense = subject.make()
    numbers = [name for name in ("epsilon", "delta", "clip_norm") if isinstance(getattr(defense, name, None), float)]
    for name in numbers:
        require_refused(lambda name=name: _prepared(replace(defense, **{name: -1.0})), name)  # type: ignore[misc]
    return ", ".join(numbers) or "not checked: the defense has no field whose value this check varies"


def vertical_draws_from_streams(subject: CheckedPart) -> str | None:
    """A defense that publishes its noise draws it from the generator that it receives."""
    defense = subject.make()
    task, plan, prepared = _prepared(defense)
    if not prepared.laws:
        return "publishes no law"
    first, other = (_trained(defense, task, plan, prepared, block=block) for block in (0, 1))
    require(
        not equal(first, other),
        "runs with different generators give equal models: it draws no noise, or draws it from another generator",
    )
    return None


def vertical_replicas_are_apart(subject: CheckedPart) -> None:
    """No run of a batch depends on the data, or on the noise, of another run of it."""
    task, plan, prepared = _prepared(subject.make())
    labels = task.people.labels.repeat(_REPLICAS, 1)
    changed = labels.clone()
    changed[-1] = 1 - changed[-1]
    runs = Runs(replicas=_REPLICAS)
    first, other = (
        all_numbers(run_vertical(task, plan, prepared.protection, Streams(1), runs=runs, planted=Planted(labels=one)))
        for one in (labels, changed)
    )
    same = equal(first[:-1], other[:-1])
    require(
        same,
        "a run depends on the labels of another run in its batch: it mixes runs, or its draws depend on the data",
    )
    words = dependent(lambda block, runs: _sums(task, plan, prepared, Runs(replicas=runs, block=block)))
    require(not words, words)


class _Messages:
    """A recorder of all messages."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []

    def watch(self, event: StepEvent) -> None:
        """Record a finished step."""
        self.found += [values.flatten(1) for values in (*event.embeddings, *event.gradients)]


def _sums(task: Any, plan: Any, prepared: VerticalPrepared, runs: Runs) -> np.ndarray:
    """Random sums of all that is sent and published in some runs, (runs, sums)."""
    sent = _Messages()
    final = run_vertical(task, plan, prepared.protection, Streams(1), runs=runs, recorders=[sent])
    numbers = torch.cat([all_numbers(final), *sent.found], dim=1).numpy()
    weights = np.random.default_rng(0).standard_normal((numbers.shape[1], _SUMS))
    return np.asarray(np.nan_to_num(numbers).astype(np.float64) @ weights)


def _prepared(defense: Any, **size: int) -> tuple[Any, Any, Any]:
    """The task, the first plan that the defense accepts, and what it prepares for it."""
    return next(_accepted(defense, **size))


def _accepted(defense: Any, **size: int) -> Iterator[tuple[Any, Any, Any]]:
    """All tasks and plans that the defense accepts, and what it prepares for them."""
    kind, refusals, accepted = _kind_of(defense), list[ValueError](), False
    for task, plan in kind.plans(defense, **size):
        try:
            prepared = defense.prepare(plan)
        except ValueError as error:
            refusals.append(error)
            continue
        sound = isinstance(prepared, kind.prepared) and isinstance(prepared.protection, kind.protection)
        name, got = kind.prepared.__name__, type(prepared).__name__
        require(sound, f"prepare(plan) must return {name}(protection, claims), got {got}")
        claims = all(isinstance(claim, Claim) for claim in prepared.claims)
        require(claims, "the claims that prepare(plan) returns must be a tuple of Claim")
        accepted = True
        yield task, plan, prepared
    require(accepted, f"the defense accepted none of {len(refusals)} plans: {refusals and refusals[0]}")


def _trained(defense: Any, task: Any, plan: Any, prepared: Any, *, block: int = 0) -> Tensor:
    return _kind_of(defense).trained(task, plan, prepared.protection, Runs(replicas=_REPLICAS, block=block))


_COMMON: tuple[ConformanceCheck, ...] = (built, prepares, claims_repeat, trains, deterministic)
DEFENSE_CHECKS = (*_COMMON, replicas_first, sums_as_stated, claims_hold, fields_checked, can_be_sent)
VERTICAL_DEFENSE_CHECKS = (*_COMMON, vertical_draws_from_streams, vertical_replicas_are_apart, can_be_sent)
TRANSFER_DEFENSE_CHECKS = (*_COMMON, can_be_sent)
