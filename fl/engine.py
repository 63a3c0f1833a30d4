"""Trains a federation round by round for a batch of replicas (independent runs), and passes each round to recorders."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .algorithms.local_training import Numbers
from .canary import Canaries
from .hooks import overrides
from .message import Message
from .plan import Plan
from .protection import Context, Protection, State, check_replica_rows
from .recorder import RoundEvent
from .report_sum import NUMBERS, block_sum, blocks, check_sums, sums_reports
from .resume_state import ResumeState
from .streams import Streams
from .task import Samples, Task
from .training.executor_choice import usual_executor
from .training.local import Batch, LocalResult, LocalTrainer, check_unchanged

Draws = Callable[[str], np.random.Generator]
Tamper = Callable[[Tensor], Tensor]


class Recorder(Protocol):
    """The interface of an object that receives each round of a run once, when that round has ended.

    Two members are optional. ``needs_reports = False`` states that the recorder reads neither ``reports`` nor
    ``received`` of an event, so that a large cohort's reports need not be held together. ``watch_reports(reports)``
    receives a round's reports before the event, all at once or block by block.
    """

    def watch(self, event: RoundEvent) -> None:
        """Receive a finished round. The engine calls this method, which must not change the round that it receives."""
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
    tamper: Tamper | None = None,
    resume_from: ResumeState | None = None,
    on_round_end: Callable[[ResumeState], None] | None = None,
    executor: type[LocalTrainer] | None = None,
    device: str = "cpu",
) -> Tensor:
    """Train a batch of replicas (independent runs) at once and return their published final models, shape ``(R, d)``
    with one row per replica.

    Replicas share data (restricted by ``batch.included``), partition and initial model. Each replica has its own
    cohorts, lots and noise.

    Args:
        batch: which replicas run together; one replica by default.
        canary: what an audit plants.
        recorders: receive every round.
        stop_after: rounds to run; all rounds of the plan by default.
        tamper: what a malicious server sends instead of the broadcast ``(R, d)``. The server's own model is unchanged.
        resume_from: state after some rounds of an earlier call with the same arguments. The result equals that of an
            uninterrupted run.
        on_round_end: receives the state after every round, so that the caller can store it.
        executor: what runs the clients' local training, for example ``executor_named("batched")``; by default that of
            ``usual_executor``.
        device: where clients compute their gradients and local steps, such as ``"cuda"``. Everything else, also what
            recorders receive, is on the CPU.

    Raises:
        ValueError: if the plan is not this task's, the canary does not fit it, a hook returns a wrong shape, the
            protection's ``sums`` is none of ``Sums``, the protection or the canary needs per-sample gradients and the
            model has none, the executor cannot train the model here, or ``resume_from`` belongs to another federation.
    """
    rounds, batch = _checked(task, plan, protection, canary, stop_after), batch or Batch()
    trainer = _trainer(executor, task, plan, protection, streams, batch, canary, device)
    begun = _begun(task, plan, protection, streams, batch)
    if resume_from is not None:
        resume_from.check(rounds, begun.model)
        begun = resume_from
    model, state, shared, kept = begun.model, begun.state, begun.shared, begun.kept
    for number in range(begun.round, rounds):
        draws = partial(streams.generator, replicate=batch.block, world=batch.world, round=number)
        context = _context(task, plan, batch, model, number)
        state = protection.open_round(context, state)
        present, context = _cohort(trainer, context, state, draws("participation"))
        sent = check_replica_rows("broadcast", protection.broadcast(model, context, state, draws("broadcast")), model)
        # Applied to what is sent only: the server goes on from its own model, whatever it made the clients train on.
        if tamper is not None:
            sent = check_replica_rows("tamper", tamper(sent), model)
        results = trainer.train_all(sent, context, state, shared, kept)
        gathered = _gathered(trainer, results, sent, present, context, state, kept, draws, recorders)
        received, kept = gathered.received, gathered.kept
        aggregate = check_replica_rows(
            "aggregate", protection.aggregate(received, context, state, draws("aggregate")), model
        )
        model = plan.algorithm.combine(model, aggregate)
        # The event holds the state with which the round ran, not the one that the queries below leave behind.
        event = RoundEvent(
            round=number,
            broadcast=sent,
            cohort=present,
            reports=gathered.reports,
            received=received,
            aggregate=aggregate,
            model=model,
            lots=gathered.lots,
            state=state,
            shared=shared,
        )
        for recorder in recorders:
            recorder.watch(event)
        state = protection.query(received, context, state, draws("query"))
        state = protection.close_round(aggregate, context, state)
        shared = plan.algorithm.advance(shared, aggregate, plan.cohort_rate)
        if on_round_end is not None:
            on_round_end(ResumeState(round=number + 1, model=model, state=state, shared=shared, kept=kept))
    return _published(model, protection, Context(plan=plan, round=rounds, replicas=batch.replicas), state, trainer)


def _trainer(
    executor: type[LocalTrainer] | None,
    task: Task,
    plan: Plan,
    protection: Protection,
    streams: Streams,
    batch: Batch,
    canary: Canaries | None,
    device: str,
) -> LocalTrainer:
    """What trains the clients, after a check of the batch and of the executor."""
    batch.check(plan, len(task.labels))
    chosen = executor or usual_executor(task, plan, protection, batch, canary, device)
    chosen.check(task.network)
    return chosen(task=task, protection=protection, streams=streams, batch=batch, canary=canary, device=device)


def _begun(task: Task, plan: Plan, protection: Protection, streams: Streams, batch: Batch) -> ResumeState:
    """The state before the first round."""
    model = task.initial(streams).expand(batch.replicas, -1).clone()
    state, shared = protection.initial_state(plan), plan.algorithm.share(model)
    return ResumeState(round=0, model=model, state=state, shared=shared, kept={})


def _context(task: Task, plan: Plan, batch: Batch, model: Tensor, number: int) -> Context:
    """What the hooks of a round may use besides the state."""
    return Context(
        plan=plan,
        round=number,
        replicas=batch.replicas,
        public_loss=partial(task.public_loss, model),
        samples=partial(_samples, task, batch, model),
    )


def _checked(task: Task, plan: Plan, protection: Protection, canary: Canaries | None, stop_after: int | None) -> int:
    """Check that the parts fit each other; return the number of rounds to run."""
    rounds = plan.rounds if stop_after is None else stop_after
    if not 1 <= rounds <= plan.rounds:
        raise ValueError(f"stop_after must be in 1..{plan.rounds} (rounds of the plan), got {rounds}")
    if plan.sizes != task.sizes or plan.layout != task.network.layout:
        raise ValueError(
            "plan must have the task's sizes and layout, "
            f"got {plan.clients} clients and {plan.layout.dim} coordinates, "
            f"task has {task.clients} and {task.network.layout.dim}"
        )
    check_sums(protection)
    # Without per_sample the engine computes mean gradients and never calls these hooks: their noise would be missing.
    for hook in ("local_step", "local_query"):
        if overrides(protection, hook) and not protection.per_sample:
            raise ValueError(f"{type(protection).__name__} overrides {hook}, so it must set per_sample = True")
    stated, held = plan.clients_per_user, task.clients_per_user
    if stated is not None and held is not None and held > stated:
        raise ValueError(f"a user has samples at {held} clients of the task, and at {stated} at most by the plan")
    # Before the first round, not at the first lot.
    if protection.per_sample:
        task.network.check_separate(type(protection).__name__)
    if canary is not None:
        canary.check(plan)
        if canary.holders:
            task.network.check_separate(f"a canary that is a {canary.unit}")
    return rounds


def _samples(task: Task, batch: Batch, model: Tensor, client: int | None) -> Samples:
    """Samples that a hook may use besides the lots: one set for all replicas, so no replica may leave samples out."""
    if client is not None and batch.included is not None:
        raise ValueError(
            "a defense that uses all of a client's samples needs the same included samples in every replica "
            "(independent run)"
        )
    return task.samples(model, client)


def _cohort(trainer: LocalTrainer, context: Context, state: State, rng: np.random.Generator) -> tuple[Tensor, Context]:
    """Draw the cohort: mask ``(R, rows)`` over clients present in any replica. Canary clients are drawn like others."""
    candidates = replace(context, senders=trainer.candidates)
    present = context.plan.draw_cohort(
        partial(trainer.streams.generator, replicate=trainer.batch.block, world=trainer.batch.world),
        context.replicas,
        len(candidates.senders),
        round=context.round,
    )
    thinned = trainer.protection.participates(candidates, state, rng)
    if thinned is not None:
        if thinned.shape != present.shape or thinned.dtype is not torch.bool:
            raise ValueError(
                f"hook participates must return booleans of shape (replicas, clients) = {tuple(present.shape)}, "
                f"got {tuple(thinned.shape)} of {thinned.dtype}"
            )
        present = present & thinned
    # Clients that are absent in every replica need no training: most clients, in a small cohort.
    rows = present.any(0).nonzero().flatten().tolist()
    return present[:, rows], replace(context, senders=tuple(candidates.senders[row] for row in rows))


@dataclass(frozen=True, kw_only=True)
class _Gathered:
    """The reports of a round, what of them arrived at the server, the lots behind them, and what clients keep."""

    reports: Message
    received: Message
    lots: dict[int, list[Tensor]]
    kept: dict[int, Numbers]


def _gathered(
    trainer: LocalTrainer,
    results: Iterator[LocalResult],
    model: Tensor,
    present: Tensor,
    context: Context,
    state: State,
    kept: Mapping[int, Numbers],
    draws: Draws,
    recorders: Sequence[Recorder],
) -> _Gathered:
    """Train the cohort and pass its reports on: as one matrix, or summed in blocks where nothing needs the matrix."""
    protection, lots, keeping = trainer.protection, dict[int, list[Tensor]](), dict(kept)
    rng, needed = draws("report"), any(map(_needs_reports, recorders))
    # A defense's own sum equals that of one matrix, and saves work in small cohorts too, such as masks.
    many = len(context.senders) * model.shape[1] > NUMBERS or overrides(protection, "block_sum")
    if many and context.senders and len(model) == 1 and sums_reports(protection) and not needed:
        total, sent = block_sum(protection, present, context, state, rng), list[Tensor]()
        for block in blocks(context.senders, model.shape[1]):
            part = replace(context, senders=context.senders[block])
            reports = total.add(_updates(trainer, results, model, present[:, block], part, lots, keeping), part)
            _show(reports, recorders)
            sent.append(reports.present)
        values = model.new_zeros(*present.shape, 0)
        empty = Message(values=values, present=torch.cat(sent, dim=1), senders=context.senders)
        return _Gathered(reports=empty, received=total.received(), lots=lots, kept=keeping)
    updates = _updates(trainer, results, model, present, context, lots, keeping)
    reports = protection.report(updates, context, state, rng)
    _show(reports, recorders)
    received = protection.channel(reports, context, state, draws("channel"))
    return _Gathered(reports=reports, received=received, lots=lots, kept=keeping)


def _needs_reports(recorder: Recorder) -> bool:
    """Whether a recorder may read the reports of an event: all do that do not state otherwise."""
    return bool(getattr(recorder, "needs_reports", True))


def _show(reports: Message, recorders: Sequence[Recorder]) -> None:
    for recorder in recorders:
        if (show := getattr(recorder, "watch_reports", None)) is not None:
            show(reports)


def _updates(
    trainer: LocalTrainer,
    results: Iterator[LocalResult],
    model: Tensor,
    present: Tensor,
    context: Context,
    lots: dict[int, list[Tensor]],
    keeping: dict[int, Numbers],
) -> Message:
    """The update of every row (zero where the row is absent), of which the next ``results`` are; the lots behind them
    and what the clients keep are added to ``lots`` and ``keeping``.
    """
    single = len(context.senders) == 1
    values = model.new_empty(len(model), 0 if single else len(context.senders), model.shape[1])
    released, version = list[Tensor | None](), model._version
    for row, sender in enumerate(context.senders):
        result = next(results)
        if single:
            # A block of one large update is not copied, unless it is a canary's row, which later rounds use.
            own = result.update.clone() if sender in trainer.planted_clients else result.update
            values = own.unsqueeze(1)
        else:
            values[:, row] = result.update
        keeping[sender] = _kept_where(present[:, row], result.kept, keeping.get(sender, {}))
        # Canary clients have no lot of the task's samples.
        if sender not in trainer.planted_clients:
            lots[sender] = [mask & present[:, row : row + 1] for mask in result.lots]
        released.append(result.released)
    # Later clients would have trained from another model.
    check_unchanged(model, version, context.plan.algorithm, trainer.protection)
    if not present.all():
        values = values.masked_fill(~present.unsqueeze(-1), 0)
    return Message(values=values, present=present, senders=context.senders, side=_side(released, present))


def _side(released: list[Tensor | None], present: Tensor) -> dict[str, Tensor]:
    """The clients' queries ``(R, rows, steps, k)``; a canary that is a row has no query and sends zeros."""
    queried = [rows for rows in released if rows is not None]
    if not queried:
        return {}
    stacked = torch.stack([torch.zeros_like(queried[0]) if rows is None else rows for rows in released], dim=1)
    return {"query": stacked.masked_fill(~present[..., None, None], 0)}


def _kept_where(present: Tensor, after: Numbers, before: Numbers) -> Numbers:
    """What a client keeps, unchanged in replicas where it did not take part."""
    return {
        name: torch.where(present.view(-1, *[1] * (value.ndim - 1)), value, before.get(name, torch.zeros_like(value)))
        for name, value in after.items()
    }


def _published(model: Tensor, protection: Protection, context: Context, state: State, trainer: LocalTrainer) -> Tensor:
    """The last model as the server publishes it: the broadcast hook may add noise here too."""
    block, world = trainer.batch.block, trainer.batch.world
    rng = trainer.streams.generator("broadcast", replicate=block, world=world, round=context.round)
    return check_replica_rows("broadcast", protection.broadcast(model, context, state, rng), model)
