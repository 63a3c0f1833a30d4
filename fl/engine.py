"""Trains a federation round by round for a batch of replicas (independent runs), and passes each round to recorders.

An interrupted run continues from the state after a round. Every random draw is addressed by its round, so no generator
state has to be stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from .algorithms import Numbers
from .canary import Canaries
from .hooks import Recorder, overrides
from .message import Message
from .plan import Plan
from .protection import Context, Protection, State
from .recorder import RoundEvent
from .rounds import NUMBERS, Round, Rounds, Tamper, blocks, check_sums, sums_reports
from .streams import Streams
from .task import Task
from .training.executor_choice import usual_executor
from .training.local import Batch, LocalResult, LocalTrainer, check_unchanged


@dataclass(frozen=True, kw_only=True)
class ResumeState:
    """The state of a federation after ``round`` rounds, from which a run can be resumed.

    Args:
        model: the server's model, ``(R, d)``.
        state: the protection's public state.
        shared: the algorithm's state that is broadcast with the model.
        kept: what each client keeps for its next round.
    """

    round: int
    model: Tensor
    state: State
    shared: Mapping[str, Tensor]
    kept: Mapping[int, Mapping[str, Tensor]]

    def check(self, rounds: int, like: Tensor) -> None:
        """Raise ValueError unless the saved state fits a federation of ``rounds`` rounds, with models of the shape of
        ``like``.
        """
        if not 0 <= self.round <= rounds:
            raise ValueError(f"resume_from must be a state after 0..{rounds} rounds, got {self.round}")
        # A state of another precision would resume and then give slightly other numbers.
        if self.model.shape != like.shape or self.model.dtype != like.dtype:
            raise ValueError(
                f"resume_from must hold a model of shape {tuple(like.shape)} and type {like.dtype}, "
                f"got {tuple(self.model.shape)} of {self.model.dtype}"
            )


def run_federation(
    task: Task,
    plan: Plan,
    protection: Protection,
    streams: Streams,
    *,
    batch: Batch | None = None,
    canary: Canaries | None = None,
    recorders: Sequence[Recorder[RoundEvent]] = (),
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
        recorders: receive every round. Two further members are optional. ``needs_reports = False`` states that the
            recorder reads neither ``reports`` nor ``received`` of an event, so that a large cohort's reports need not
            be held together. ``watch_reports(reports)`` receives a round's reports before the event, all at once or
            block by block.
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
    last, batch = _checked(task, plan, protection, canary, stop_after), batch or Batch()
    trainer = _trainer(executor, task, plan, protection, streams, batch, canary, device)
    begun = _begun(task, plan, protection, streams, batch)
    if resume_from is not None:
        resume_from.check(last, begun.model)
        begun = resume_from
    training = _Training(trainer=trainer, shared=begun.shared, kept=dict(begun.kept))
    rounds = _rounds(training, plan, tamper)
    model, state = begun.model, begun.state
    for turn in rounds.each(last, first=begun.round, model=model, state=state):
        training.begin(turn)
        _report(turn, training, recorders)
        model = turn.next_model
        event = _event(turn, training)
        for recorder in recorders:
            recorder.watch(event)
        state = turn.after
        training.end(turn)
        if on_round_end is not None:
            on_round_end(
                ResumeState(round=turn.number + 1, model=model, state=state, shared=training.shared, kept=training.kept)
            )
    return rounds.published(model, state, last)


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


def _rounds(training: "_Training", plan: Plan, tamper: Tamper | None) -> Rounds:
    trainer = training.trainer
    return Rounds(
        plan=plan,
        protection=trainer.protection,
        streams=trainer.streams,
        rows=training,
        runs=trainer.batch,
        candidates=trainer.candidates,
        task=trainer.task,
        included=trainer.batch.included is not None,
        moves=True,
        tamper=tamper,
    )


def _begun(task: Task, plan: Plan, protection: Protection, streams: Streams, batch: Batch) -> ResumeState:
    """The state before the first round."""
    model = task.initial(streams).expand(batch.replicas, -1).clone()
    state, shared = protection.initial_state(plan), plan.algorithm.share(model)
    return ResumeState(round=0, model=model, state=state, shared=shared, kept={})


def _checked(task: Task, plan: Plan, protection: Protection, canary: Canaries | None, stop_after: int | None) -> int:
    """Check that the parts fit each other; return the number of rounds to run."""
    rounds = plan.rounds if stop_after is None else stop_after
    if not 1 <= rounds <= plan.rounds:
        raise ValueError(f"stop_after must be in 1..{plan.rounds} (rounds of the plan), got {rounds}")
    if plan.sizes != task.sizes or plan.layout != task.network.layout:
        raise ValueError(
            "plan must have the task's sizes and layout (samples by client, model parameters), "
            f"got {plan.sizes[:9]} and {plan.layout.dim}, task has {task.sizes[:9]} and {task.network.layout.dim}"
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


def _event(turn: Round, training: "_Training") -> RoundEvent:
    """What recorders see of a finished round; its state is that before the queries."""
    return RoundEvent(
        round=turn.number,
        broadcast=turn.sent,
        cohort=turn.cohort,
        reports=turn.reports,
        received=turn.received,
        aggregate=turn.aggregate,
        model=turn.next_model,
        lots=training.lots,
        state=turn.state,
        shared=training.shared,
    )


def _report(turn: Round, training: "_Training", recorders: Sequence[Recorder[RoundEvent]]) -> None:
    """Train the cohort and pass its reports on: as one matrix, or summed in blocks where nothing needs the matrix."""
    protection, dim, context = turn.run.protection, turn.model.shape[1], turn.context
    # All recorders that do not state otherwise may read the reports of an event.
    needed = any(getattr(recorder, "needs_reports", True) for recorder in recorders)
    # A defense's own sum equals that of one matrix, and saves work in small cohorts too, such as masks.
    many = len(context.senders) * dim > NUMBERS or overrides(protection, "block_sum")
    if many and context.senders and len(turn.model) == 1 and sums_reports(protection) and not needed:
        turn.sum_in_blocks(training.blocks(turn, blocks(context.senders, dim)), partial(_show, recorders))
    else:
        _show(recorders, turn.reports)
        # In a large cohort they take as much memory as the reports.
        del turn.updates


def _show(recorders: Sequence[Recorder[RoundEvent]], reports: Message) -> None:
    for recorder in recorders:
        if (show := getattr(recorder, "watch_reports", None)) is not None:
            show(reports)


@dataclass(kw_only=True)
class _Training:
    """The local training of the clients, as rows of a round.

    Args:
        shared: what the algorithm sends with the model; ``kept``: what each client stores, as of the last round.
        lots: the samples that clients used in this round.
    """

    trainer: LocalTrainer
    shared: Numbers
    kept: dict[int, Numbers]
    lots: dict[int, list[Tensor]] = field(default_factory=dict)
    _results: Iterator[LocalResult] = field(default_factory=lambda: iter(()))

    def begin(self, turn: Round) -> None:
        """Start the training of a round's cohort."""
        before = self.kept
        self.lots, self.kept = {}, dict(before)
        self._results = self.trainer.train_all(turn.sent, turn.context, turn.state, self.shared, before)

    def end(self, turn: Round) -> None:
        """Bring what the algorithm shares up to date."""
        plan = turn.run.plan
        self.shared = plan.algorithm.advance(self.shared, turn.aggregate, plan.cohort_rate)

    def __call__(self, turn: Round) -> Message:
        """Return the updates of the whole cohort."""
        return self._updates(turn, turn.cohort, turn.context)

    def blocks(self, turn: Round, blocks: Iterator[slice]) -> Iterator[tuple[Message, Context]]:
        """Yield the updates of the cohort block by block, with the context of each."""
        for block in blocks:
            part = replace(turn.context, senders=turn.context.senders[block])
            yield self._updates(turn, turn.cohort[:, block], part), part

    def _updates(self, turn: Round, present: Tensor, context: Context) -> Message:
        """The update of every row (zero where the row is absent), of which the next results are."""
        model, planted = turn.sent, self.trainer.planted_clients
        single = len(context.senders) == 1
        values = model.new_empty(len(model), 0 if single else len(context.senders), model.shape[1])
        released, version = list[Tensor | None](), model._version
        for row, sender in enumerate(context.senders):
            result = next(self._results)
            if single:
                # A block of one large update is not copied, unless it is a canary's row, which later rounds use.
                own = result.update.clone() if sender in planted else result.update
                values = own.unsqueeze(1)
            else:
                values[:, row] = result.update
            self.kept[sender] = _kept_where(present[:, row], result.kept, self.kept.get(sender, {}))
            # Canary clients have no lot of the task's samples.
            if sender not in planted:
                self.lots[sender] = [mask & present[:, row : row + 1] for mask in result.lots]
            released.append(result.released)
        # Later clients would have trained from another model.
        check_unchanged(model, version, context.plan.algorithm, self.trainer.protection)
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
