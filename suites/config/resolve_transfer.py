"""Turn the transfers of a suite into tasks, plans, teachers' answers and calibrated defenses."""

from functools import lru_cache

from torch import Tensor

from ...attacks.attack import Attack
from ...attacks.transfer.shadow_students import ShadowTeachers, shadow_teachers
from ...attacks.transfer.vote_attack import VoteAttack
from ...defenses.transfer.defense import PreparedTransfer, TransferDefense
from ...fl.data.datasets import load_dataset
from ...fl.partitions.partitions import partition_from
from ...fl.streams import Streams
from ...fl.task import build_task
from ...fl.transfer.engine import teacher_logits
from ...fl.transfer.plan import TransferPlan
from ...fl.transfer.protection import TransferProtection
from ...fl.transfer.training import TrainingRule
from ...fl.transfer.transfer_task import TransferTask, transfer_task
from .other_federations import Prepares, attacks_on, calibrated_for, defenses_on
from .outside_parts import outside_versions
from .resolve import AttackEntry, DefenseEntry, ResolvedSuite, line_of
from .source import ConfigError
from .tables.transfer import TrainingSpec, TransferSpec

_RETURNS = Prepares(prepared=PreparedTransfer, protection=TransferProtection)
_Key = tuple[str, int, str, str, str]


def transfer_task_of(spec: TransferSpec, seed: int) -> TransferTask:
    """Build the data and model of a transfer for one seed; the result is cached because the next job often needs it
    again.
    """
    return _task(*_key(spec, seed))


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
def _task(specification: str, seed: int, folder: str, digest: str, versions: str) -> TransferTask:
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


def transfer_defenses(suite: ResolvedSuite, federation: str) -> list[DefenseEntry]:
    """Return the defenses that run on a transfer."""
    return defenses_on(suite, federation, TransferDefense)


def transfer_attacks(suite: ResolvedSuite, federation: str) -> list[AttackEntry]:
    """Return the attacks that run on a transfer: on votes, and membership attacks on shadow students."""
    return [*attacks_on(suite, federation, VoteAttack), *attacks_on(suite, federation, Attack)]


def prepare_transfer(
    suite: ResolvedSuite, entry: DefenseEntry, federation: str, seed: int
) -> tuple[TransferPlan, PreparedTransfer]:
    """Calibrate a defense for a transfer's plan.

    Raises:
        ConfigError: if the transfer cannot be set up, an attack names a teacher that it does not have, its plan breaks
            an assumption of the defense, or the defense returns no valid claims.
    """
    spec = suite.spec.transfer[federation]
    try:
        plan = transfer_plan_of(spec, transfer_task_of(spec, seed))
    except ValueError as error:
        place = line_of(str(error), suite.source, ("transfer", federation), spec.model_fields_set)
        raise ConfigError(f"{place}: federation {federation} cannot be set up: {error}") from error
    for attack in attacks_on(suite, federation, VoteAttack):
        teacher = attack.part.instance.teacher
        if teacher >= plan.teachers:
            place = suite.source.where(("attacks", attack.label, "teacher"))
            raise ConfigError(
                f"{place}: attack {attack.label}: teacher must be below teachers = {plan.teachers}, got {teacher}"
            )
    prepared: PreparedTransfer = calibrated_for(suite, entry, federation, plan, _RETURNS)
    return plan, prepared
