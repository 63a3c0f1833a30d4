"""Conformance checks of defenses."""

import copy
import dataclasses
from dataclasses import replace

import numpy as np
import torch

from ...audit.claim import Claim
from ...defenses.defense import Defense, Prepared
from ...fl.algorithms import BoundedUpdate, FedAvg, FedSGD, Scaffold
from ...fl.engine import run_federation
from ...fl.hooks import overrides
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.rounds import Rounds, given_rows, sums_reports
from ...fl.sampling import FixedSize, Full, Poisson
from ...fl.streams import Streams, normal
from ...fl.task import Task
from ...fl.training.local import Batch
from ..mutation.versions import FederatedVersions
from .check import (
    CheckedPart,
    ConformanceCheck,
    NotConforming,
    built,
    can_be_sent,
    check_repeated_claims,
    equal,
    no_global_randomness,
    require,
    toy_plan,
    toy_task,
)

_REPLICAS = 3
_ROUNDING = 1e-3
"""Largest difference of two aggregates, in the largest number, that rounding in single precision explains."""
_ALGORITHMS = (
    FedSGD(learning_rate=0.5),
    FedAvg(learning_rate=0.2, local_steps=2),
    BoundedUpdate(learning_rate=0.2, local_steps=2, mu=0.1, radius=1.0),
    Scaffold(learning_rate=0.2, local_steps=2),
)
_LOTS = (Full(), Poisson(0.3), FixedSize(1))
"""Algorithms and lots that are tried in turn, until the defense accepts a plan."""


def prepares(subject: CheckedPart) -> str | None:
    """It prepares a protection and claims for a plan, or refuses the plan with a ValueError."""
    defense: Defense = subject.make()
    _, plan, prepared = _prepared(defense)
    words = "; ".join(claim.describe() for claim in prepared.claims) or "states no claim"
    require(
        all(claim.rounds <= plan.rounds for claim in prepared.claims), f"a claim covers more than {plan.rounds} rounds"
    )
    return f"under {type(plan.algorithm).__name__}: {words}"


def claims_repeat(subject: CheckedPart) -> str | None:
    """Its claims are the same at every preparation and survive being written and read."""
    check_repeated_claims(*(_prepared(subject.make())[2].claims for _ in range(2)))
    return None


def trains(subject: CheckedPart) -> str | None:
    """A small federation trains under it, with finite numbers of the right shape."""
    task, plan, prepared = _prepared(subject.make())
    final = _trained(task, plan, prepared, seed=1)
    shape = (_REPLICAS, task.network.layout.dim)
    require(tuple(final.shape) == shape, f"the models have shape {tuple(final.shape)}, not {shape}")
    require(final.dtype == torch.float32, f"the models are {final.dtype}, not torch.float32")
    require(bool(final.isfinite().all()), "a model holds NaN or infinity")
    return None


def deterministic(subject: CheckedPart) -> str | None:
    """Equal streams give equal runs, no global generator is used, and it keeps nothing between runs."""
    task, plan, prepared = _prepared(subject.make())
    before = copy.deepcopy(vars(prepared.protection))
    with no_global_randomness():
        first, again = (_trained(task, plan, prepared, seed=1) for _ in range(2))
    require(equal(first, again), "equal streams give another run: it keeps state or draws elsewhere")
    require(equal(before, vars(prepared.protection)), "its protection changed during the run")
    return None


def replicas_first(subject: CheckedPart) -> str | None:
    """Replicas come first in every tensor, and each has noise of its own."""
    task, plan, prepared = _prepared(subject.make())
    noisy = any(claim.epsilon < float("inf") for claim in prepared.claims)
    final = _trained(task, plan, prepared, seed=1)
    require(
        not noisy or len(np.unique(final.numpy(), axis=0)) == _REPLICAS,
        "two replicas have equal models: they share their noise",
    )
    return None if noisy else "not checked: it states no claim"


def sums_as_stated(subject: CheckedPart) -> str | None:
    """Where it states what its aggregate needs of the reports, a cohort in blocks has the aggregate of one matrix."""
    task, plan, prepared = _prepared(subject.make(), count=27)
    protection = prepared.protection
    if not sums_reports(protection) or overrides(protection, "local_query"):
        return "not checked: it gets all reports at once"
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
    versions = FederatedVersions(name=subject.name, task=task, plan=plan, correct=prepared, broken=None)
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
        try:
            changed = dataclasses.replace(defense, **{name: -1.0})
            _prepared(changed)
        except ValueError as error:
            require(name in str(error), f"its message for {name} = -1.0 does not name the field: {error}")
            continue
        raise NotConforming(f"it accepted {name} = -1.0: check fields in __post_init__ and raise ValueError")
    return ", ".join(numbers) or "not checked: it has none of these fields"


def _prepared(defense: Defense, *, inert: int = 0, count: int = 24) -> tuple[Task, Plan, Prepared]:
    """The task, the first plan that the defense accepts, and what it prepares for it."""
    task = toy_task(clients=4, count=count).with_inert(inert)
    first: ValueError | None = None
    for algorithm in _ALGORITHMS:
        for lot in _LOTS:
            plan = toy_plan(task, algorithm=algorithm, lot=lot, rounds=3)
            try:
                prepared = defense.prepare(plan)
            except ValueError as error:
                first = first or error
                continue
            if not isinstance(prepared, Prepared) or not isinstance(prepared.protection, Protection):
                raise NotConforming(
                    f"prepare(plan) must return Prepared(protection, claims), got {type(prepared).__name__}"
                )
            if not all(isinstance(claim, Claim) for claim in prepared.claims):
                raise NotConforming("the claims that prepare(plan) returns must be a tuple of Claim")
            return task, plan, prepared
    raise NotConforming(f"it accepted none of {len(_ALGORITHMS) * len(_LOTS)} plans: {first}")


def _trained(task: Task, plan: Plan, prepared: Prepared, *, seed: int) -> torch.Tensor:
    return run_federation(task, plan, prepared.protection, Streams(seed), batch=Batch(replicas=_REPLICAS))


DEFENSE_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    prepares,
    claims_repeat,
    trains,
    deterministic,
    replicas_first,
    sums_as_stated,
    claims_hold,
    fields_checked,
    can_be_sent,
)
