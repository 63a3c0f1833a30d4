"""The round loop: state in, state out; recorders watch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .local import Batch, LocalTrainer
from .message import Message
from .plan import Plan
from .probe import Canaries
from .protection import Context, Protection, State, check_rows
from .recorder import RoundEvent
from .streams import Streams
from .task import Task

Draws = Callable[[str], np.random.Generator]


class Recorder(Protocol):
    """Sees every round once."""

    def watch(self, event: RoundEvent) -> None:
        """Called at the end of a round; must not change what it sees."""
        ...


def run_federation(
    task: Task,
    plan: Plan,
    protection: Protection,
    streams: Streams,
    *,
    batch: Batch | None = None,
    canary: Canaries | None = None,
    recorders: Sequence[Recorder] = (),
    stop_after: int | None = None,
) -> Tensor:
    """Train, for a batch of replicas at once, and return the final models ``(R, d)``.

    Replicas share data, partition and initial model; each has its own cohorts, lots and noise. ``stop_after``: rounds
    to run of the plan's, all by default.

    Raises:
        ValueError: if the plan is not this task's, the canary does not fit it, or a station returns a wrong shape.
    """
    rounds = plan.rounds if stop_after is None else stop_after
    _check(task, plan, protection, canary, rounds)
    batch = batch or Batch()
    trainer = LocalTrainer(task=task, protection=protection, streams=streams, batch=batch, canary=canary)
    model = task.network.initial(streams.generator("init")).expand(batch.replicas, -1).clone()
    state = protection.initial_state(plan)
    for number in range(rounds):
        draws = partial(streams.generator, replicate=batch.block, world=batch.world, round=number)
        context = Context(plan=plan, round=number, replicas=batch.replicas)
        state = protection.open_round(context, state)
        present, context = _cohort(trainer, context, state, draws)
        sent = check_rows("broadcast", protection.broadcast(model, context, state, draws("broadcast")), model)
        updates, lots = _updates(trainer, sent, present, context, state)
        reports = protection.report(updates, context, state, draws("report"))
        received = protection.channel(reports, context, state, draws("channel"))
        aggregate = check_rows("aggregate", protection.aggregate(received, context, state, draws("aggregate")), model)
        model = plan.algorithm.combine(model, aggregate)
        event = RoundEvent(
            round=number,
            broadcast=sent,
            reports=reports,
            received=received,
            aggregate=aggregate,
            model=model,
            lots=lots,
            state=state,
        )
        for recorder in recorders:
            recorder.watch(event)
        state = protection.close_round(aggregate, context, state)
    return model


def _check(task: Task, plan: Plan, protection: Protection, canary: Canaries | None, rounds: int) -> None:
    if not 1 <= rounds <= plan.rounds:
        raise ValueError(f"stop_after must be in 1..{plan.rounds}, the plan's rounds, got {rounds}")
    if plan.sizes != task.sizes or plan.layout != task.network.layout:
        raise ValueError(
            "plan must have the task's sizes and layout, "
            f"got {plan.clients} clients and {plan.layout.dim} coordinates, "
            f"task has {task.clients} and {task.network.layout.dim}"
        )
    if type(protection).local_step is not Protection.local_step and not protection.per_sample:
        raise ValueError(f"{type(protection).__name__} overrides local_step: it must set per_sample = True")
    if canary is not None:
        canary.check(plan)


def _cohort(trainer: LocalTrainer, context: Context, state: State, draws: Draws) -> tuple[Tensor, Context]:
    """Who takes part: mask ``(R, rows)`` over the rows that any replica fills; a canary client is drawn like any."""
    everybody = replace(context, senders=(*range(context.plan.clients), *trainer.planted_clients))
    present = context.plan.cohort.draw(draws("cohort"), context.replicas, len(everybody.senders))
    thinned = trainer.protection.participates(everybody, state, draws("participation"))
    if thinned is not None:
        if thinned.shape != present.shape or thinned.dtype is not torch.bool:
            raise ValueError(
                f"participates must return booleans (replicas, rows) = {tuple(present.shape)}, "
                f"got {tuple(thinned.shape)} of {thinned.dtype}"
            )
        present = present & thinned
    rows = present.any(0).nonzero().flatten().tolist()
    return present[:, rows], replace(context, senders=tuple(everybody.senders[row] for row in rows))


def _updates(
    trainer: LocalTrainer, model: Tensor, present: Tensor, context: Context, state: State
) -> tuple[Message, dict[int, list[Tensor]]]:
    """Every row's update, zero where the row is absent, and the lots behind them."""
    values = model.new_zeros(len(model), len(context.senders), model.shape[1])
    lots: dict[int, list[Tensor]] = {}
    for row, sender in enumerate(context.senders):
        result = trainer.train(model, sender, context, state)
        values[:, row] = result.update
        if sender < context.plan.clients:
            lots[sender] = [mask & present[:, row : row + 1] for mask in result.lots]
    values[~present] = 0
    return Message(values=values, present=present, senders=context.senders), lots
