"""Turn the vertical federations and the transfers of a suite into tasks and plans."""

from dataclasses import replace

from torch import Tensor

from ...attacks.transfer.shadow_students import ShadowTeachers, shadow_teachers
from ...fl.data.datasets import load_dataset
from ...fl.partitions import partition_from
from ...fl.streams import Streams
from ...fl.task import TrainingRule, build_task
from ...fl.transfer.engine import teacher_logits
from ...fl.transfer.task import TransferPlan, TransferTask, transfer_task
from ...fl.vertical.protection import VerticalPlan
from ...fl.vertical.task import VerticalTask, build_vertical_task
from .resolve import cached_by_settings
from .tables.other_federations import TrainingSpec, TransferSpec, VerticalSpec


@cached_by_settings
def vertical_task_of(spec: VerticalSpec, seed: int) -> VerticalTask:
    """Build the data and models of a vertical federation for one seed."""
    return build_vertical_task(
        load_dataset(spec.data),
        streams=Streams(seed),
        columns=spec.columns,
        active=spec.active,
        people=spec.people,
        public=spec.public,
        embedding=spec.embedding,
        hidden=spec.hidden,
        top_hidden=spec.top_hidden,
        summed=spec.summed,
    )


def vertical_plan_of(spec: VerticalSpec, task: VerticalTask) -> VerticalPlan:
    """Return the public plan of a vertical federation."""
    return VerticalPlan(
        people=len(task.people),
        network=task.network,
        epochs=spec.epochs,
        batch=spec.batch,
        learning_rate=spec.learning_rate,
        frozen=spec.frozen,
    )


def small_plan(plan: VerticalPlan, people: int, batch: int) -> VerticalPlan:
    """Return the same plan for at most ``people`` people in batches of at most ``batch``. If the plan's last batch is
    smaller than the others, the last batch of the result is smaller too, because a defense may treat it differently;
    this does not hold for fewer than three people, or batches of one.
    """
    fewer = min(people, plan.people)
    each = min(batch, plan.batch, fewer)
    if plan.people % plan.batch and not fewer % each:
        fewer, each = (fewer - each // 2, each) if fewer > each else (fewer, fewer // 2 + 1)
    return replace(plan, people=fewer, batch=each)


@cached_by_settings
def transfer_task_of(spec: TransferSpec, seed: int) -> TransferTask:
    """Build the data and model of a transfer for one seed."""
    streams = Streams(seed)
    try:
        task = build_task(
            load_dataset(spec.data),
            model=spec.model,
            partition=partition_from(spec.partition),
            clients=spec.teachers,
            samples=spec.samples,
            streams=streams,
        )
    except ValueError as error:
        # The teachers are the clients of this task.
        words = str(error).replace("each client", "each of the teachers").replace("clients", "teachers")
        raise ValueError(words) from error
    return transfer_task(task, queries=spec.queries, streams=streams, source=spec.source)


@cached_by_settings
def teachers_of(spec: TransferSpec, seed: int) -> Tensor:
    """Train the teachers of a transfer and return their logits on the queries, ``(1, teachers, queries, classes)``;
    every defense starts from the same teachers.
    """
    task = transfer_task_of(spec, seed)
    return teacher_logits(task, transfer_plan_of(spec, task), Streams(seed))


@cached_by_settings
def shadow_teachers_of(spec: TransferSpec, seed: int, count: int) -> ShadowTeachers:
    """Train the teachers of ``count`` shadow transfers on random halves of the samples."""
    task = transfer_task_of(spec, seed)
    return shadow_teachers(task, transfer_plan_of(spec, task), Streams(seed), count=count)


def transfer_plan_of(spec: TransferSpec, task: TransferTask) -> TransferPlan:
    """Return the public plan of a transfer."""
    return task.plan(teacher=_rule(spec.teacher), student=_rule(spec.student))


def _rule(spec: TrainingSpec) -> TrainingRule:
    return TrainingRule(**spec.model_dump())
