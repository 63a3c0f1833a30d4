"""Turn the vertical federations and the transfers of a suite into tasks and plans."""

from dataclasses import replace
from functools import lru_cache

from torch import Tensor

from ...attacks.transfer.shadow_students import ShadowTeachers, shadow_teachers
from ...fl.data.datasets import load_dataset
from ...fl.partitions import partition_from
from ...fl.streams import Streams
from ...fl.task import build_task
from ...fl.transfer.engine import teacher_logits
from ...fl.transfer.task import TrainingRule, TransferPlan, TransferTask, transfer_task
from ...fl.vertical.protection import VerticalPlan
from ...fl.vertical.task import VerticalTask, build_vertical_task
from .catalogue import outside_versions
from .tables.other_federations import TrainingSpec, TransferSpec, VerticalSpec


def vertical_task_of(spec: VerticalSpec, seed: int) -> VerticalTask:
    """Build the data and models of a vertical federation for one seed; the result is cached because the next job often
    needs it again.
    """
    return _vertical_task(spec.model_dump_json(), seed, spec.folder, spec.digest, str(outside_versions([spec])))


@lru_cache(maxsize=4)
def _vertical_task(specification: str, seed: int, folder: str, digest: str, versions: str) -> VerticalTask:
    spec = VerticalSpec.model_validate_json(specification)
    return build_vertical_task(
        load_dataset(spec.reading_alone(folder, digest).data),
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
    """Return the same plan for at most ``people`` people in batches of at most ``batch``; its last batch is smaller
    where that of the plan is, because a defense may treat it differently; with fewer than three people, or batches of
    one, it is not.
    """
    fewer = min(people, plan.people)
    each = min(batch, plan.batch, fewer)
    if plan.people % plan.batch and not fewer % each:
        fewer, each = (fewer - each // 2, each) if fewer > each else (fewer, fewer // 2 + 1)
    return replace(plan, people=fewer, batch=each)


_Key = tuple[str, int, str, str, str]


def transfer_task_of(spec: TransferSpec, seed: int) -> TransferTask:
    """Build the data and model of a transfer for one seed; the result is cached because the next job often needs it
    again.
    """
    return _transfer_task(*_key(spec, seed))


def teachers_of(spec: TransferSpec, seed: int) -> Tensor:
    """Train the teachers of a transfer and return their logits on the queries, ``(1, teachers, queries, classes)``;
    cached, because every defense starts from the same teachers.
    """
    return _teachers(*_key(spec, seed))


def shadow_teachers_of(spec: TransferSpec, seed: int, count: int) -> ShadowTeachers:
    """Train the teachers of ``count`` shadow transfers on random halves of the samples; cached like ``teachers_of``."""
    return _shadow_teachers(*_key(spec, seed), count)


def _key(spec: TransferSpec, seed: int) -> _Key:
    return spec.model_dump_json(), seed, spec.folder, spec.digest, str(outside_versions([spec]))


def _read(specification: str, folder: str, digest: str) -> TransferSpec:
    return TransferSpec.model_validate_json(specification).reading_alone(folder, digest)


@lru_cache(maxsize=4)
def _transfer_task(specification: str, seed: int, folder: str, digest: str, versions: str) -> TransferTask:
    spec, streams = _read(specification, folder, digest), Streams(seed)
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


@lru_cache(maxsize=2)
def _teachers(specification: str, seed: int, folder: str, digest: str, versions: str) -> Tensor:
    spec = _read(specification, folder, digest)
    task = transfer_task_of(spec, seed)
    return teacher_logits(task, transfer_plan_of(spec, task), Streams(seed))


@lru_cache(maxsize=2)
def _shadow_teachers(
    specification: str, seed: int, folder: str, digest: str, versions: str, count: int
) -> ShadowTeachers:
    spec = _read(specification, folder, digest)
    task = transfer_task_of(spec, seed)
    return shadow_teachers(task, transfer_plan_of(spec, task), Streams(seed), count=count)


def transfer_plan_of(spec: TransferSpec, task: TransferTask) -> TransferPlan:
    """Return the public plan of a transfer."""
    return task.plan(teacher=_rule(spec.teacher), student=_rule(spec.student))


def _rule(spec: TrainingSpec) -> TrainingRule:
    return TrainingRule(**spec.model_dump())
