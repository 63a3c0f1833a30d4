"""Turn the vertical federations and the transfers of a suite into tasks, plans and calibrated defenses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from torch import Tensor

from ...attacks.attack import Attack, AttackPart
from ...attacks.transfer.shadow_students import ShadowTeachers, shadow_teachers
from ...attacks.transfer.vote_attack import VoteAttack
from ...attacks.vertical.attack import VerticalAttack
from ...audit.claim import Claim
from ...audit.parts import name_and_options
from ...defenses.defense import DefensePart
from ...defenses.transfer.defense import PreparedTransfer, TransferDefense
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ...fl.data.datasets import load_dataset
from ...fl.data.files.lookup import names_a_file
from ...fl.partitions import partition_from
from ...fl.streams import Streams
from ...fl.task import build_task
from ...fl.transfer.engine import teacher_logits
from ...fl.transfer.protection import TransferProtection
from ...fl.transfer.task import TrainingRule, TransferPlan, TransferTask, transfer_task
from ...fl.vertical.protection import VerticalLaw, VerticalPlan, VerticalProtection
from ...fl.vertical.task import VerticalTask, build_vertical_task
from .catalogue import outside_versions
from .resolve import AttackEntry, DefenseEntry, ResolvedSuite, line_of
from .source import ConfigError
from .tables.other_federations import TrainingSpec, TransferSpec, VerticalSpec
from .tables.suite import PlanChange


@dataclass(frozen=True, kw_only=True)
class Prepares:
    """What ``prepare(plan)`` of a kind of defenses must return.

    Args:
        prepared: its class, with fields ``protection`` and ``claims``.
        protection: the base class of its protection.
        mappings: its fields that are dictionaries by ``claim_id``, and the class of their values.
    """

    prepared: type[Any]
    protection: type[Any]
    mappings: Mapping[str, Any] = field(default_factory=dict)

    def why_not(self, found: object) -> str:
        """Return which field of ``found`` is wrong, and what it was; empty string if all are of these classes."""
        if not isinstance(found, self.prepared):
            return f"got {_shown(found)}"
        if not isinstance(found.protection, self.protection):
            return f"protection must be a {self.protection.__name__}, got {_shown(found.protection)}"
        if not isinstance(found.claims, tuple | list):
            return f"claims must be a tuple of Claim, got {_shown(found.claims)}"
        wrong = [claim for claim in found.claims if not isinstance(claim, Claim)]
        if wrong:
            return f"claims must be a tuple of Claim, got {_shown(wrong[0])} in it"
        each = (_why_no_mapping(name, getattr(found, name), kind) for name, kind in self.mappings.items())
        return next((words for words in each if words), "")


def _why_no_mapping(name: str, found: object, kind: Any) -> str:
    wanted = f"{name} must be a dictionary of {kind.__name__} by claim_id"
    if not isinstance(found, Mapping):
        return f"{wanted}, got {_shown(found)}"
    wrong = [f"{_shown(key)}: {_shown(value)}" for key, value in found.items() if not isinstance(value, kind)]
    return f"{wanted}, got {wrong[0]} in it" if wrong else ""


def _shown(value: object) -> str:
    """A number or a text as it is, and the type of any other object, whose own words may be its address."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return f"{value!r:.80}" if plain else f"an object of type {type(value).__name__}"


def defenses_on(suite: ResolvedSuite, federation: str, base: type[DefensePart]) -> list[DefenseEntry]:
    """Return the defenses of a kind that run on a federation: those whose settings name it; if there are none, those
    whose settings name no federation.
    """
    entries = [entry for entry in suite.defenses if isinstance(entry.part.instance, base)]
    for entry in entries:
        _check_settings(suite, entry)
    chosen = [entry for entry in entries if entry.federation == federation]
    return chosen or [entry for entry in entries if entry.federation is None]


def _check_settings(suite: ResolvedSuite, entry: DefenseEntry) -> None:
    """Raise ConfigError for settings that only federations of clients have."""
    given = {"plan": entry.change != PlanChange(), "replicas": entry.replicas is not None}
    for key in [key for key, is_given in given.items() if is_given]:
        place = suite.source.where(("defenses", entry.label, key))
        raise ConfigError(
            f"{place}: defenses.{entry.label}.{key} changes federations of clients, and this defense runs on another "
            "kind, whose own table holds such settings"
        )


def attacks_on(suite: ResolvedSuite, federation: str, base: type[AttackPart]) -> list[AttackEntry]:
    """Return the attacks of a kind that run on a federation."""
    return [
        entry for entry in suite.attacks if isinstance(entry.part.instance, base) and federation in entry.federations
    ]


def calibrated_for(suite: ResolvedSuite, entry: DefenseEntry, federation: str, plan: Any, returns: Prepares) -> Any:
    """Calibrate a defense for a federation's plan.

    Raises:
        ConfigError: if the plan breaks an assumption of the defense, or the defense returns no valid claims.
    """
    try:
        prepared = entry.part.instance.prepare(plan)
    except Exception as error:  # A user's part may raise anything; nothing has run yet, so one message is enough.
        words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        place = suite.source.where(("defenses", entry.label))
        raise ConfigError(
            f"{place}: defense {entry.label} cannot be prepared for federation {federation}: {words}"
        ) from error
    why = returns.why_not(prepared)
    if why:
        wanted = f"{returns.prepared.__name__}(protection, claims)"
        raise ConfigError(f"defense {entry.label}: prepare(plan) must return {wanted}: {why}")
    return prepared


_LEAST_PEOPLE = 4
"""Of a federation whose labels are guessed in one run: at least two guesses are planned."""
_PREPARED_VERTICAL = Prepares(
    prepared=VerticalPrepared, protection=VerticalProtection, mappings={"laws": VerticalLaw, "spending": Callable}
)


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


def vertical_defenses(suite: ResolvedSuite, federation: str) -> list[DefenseEntry]:
    """Return the defenses that run on a vertical federation."""
    return defenses_on(suite, federation, VerticalDefense)


def vertical_attacks(suite: ResolvedSuite, federation: str) -> list[AttackEntry]:
    """Return the attacks that run on a vertical federation."""
    return attacks_on(suite, federation, VerticalAttack)


def prepare_vertical(
    suite: ResolvedSuite, entry: DefenseEntry, federation: str, seed: int
) -> tuple[VerticalPlan, VerticalPrepared]:
    """Calibrate a defense for a vertical federation's plan.

    Raises:
        ConfigError: if the federation cannot be set up, its plan breaks an assumption of the defense, or the defense
            returns no valid claims.
    """
    spec = suite.spec.vertical[federation]
    _check_label(suite, federation)
    try:
        plan = vertical_plan_of(spec, vertical_task_of(spec, seed))
    except ValueError as error:
        place = line_of(str(error), suite.source, ("vertical", federation), spec.model_fields_set)
        raise ConfigError(f"{place}: federation {federation} cannot be set up: {error}") from error
    if spec.known >= plan.people:
        place = suite.source.where(("vertical", federation, "known"))
        raise ConfigError(f"{place}: known must be below people = {plan.people}, got {spec.known}")
    if spec.audit and spec.audit.design != "independent" and plan.people < _LEAST_PEOPLE:
        place = suite.source.where(("vertical", federation, "people"))
        raise ConfigError(
            f"{place}: people must be >= {_LEAST_PEOPLE} for design = {spec.audit.design!r}, which guesses about one "
            f"half of them from the other, got {plan.people}"
        )
    prior = spec.audit.prior if spec.audit else None
    if prior is not None and len(prior) != plan.network.classes:
        place = suite.source.where(("vertical", federation, "audit", "prior"))
        raise ConfigError(
            f"{place}: prior must have one probability per label, {plan.network.classes}, got {len(prior)}"
        )
    prepared: VerticalPrepared = calibrated_for(suite, entry, federation, plan, _PREPARED_VERTICAL)
    return plan, prepared


def _check_label(suite: ResolvedSuite, federation: str) -> None:
    """Raise ConfigError if the column of a file's labels is listed among the columns of a party."""
    spec = suite.spec.vertical[federation]
    name, options = name_and_options("dataset", spec.dataset)
    listed = () if isinstance(spec.columns, int) else chain(*spec.columns)
    label = options.get("label", "label")
    if names_a_file(name) and label in listed:
        place = suite.source.where(("vertical", federation, "columns"))
        raise ConfigError(
            f"{place}: federation {federation} cannot be set up: columns must not list {label!r}, which is the label: "
            "the active party holds it"
        )


_PREPARED_TRANSFER = Prepares(prepared=PreparedTransfer, protection=TransferProtection)
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
    prepared: PreparedTransfer = calibrated_for(suite, entry, federation, plan, _PREPARED_TRANSFER)
    return plan, prepared
