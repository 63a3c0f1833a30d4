"""Turn the vertical federations and the transfers of a suite into tasks, plans and calibrated defenses."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from torch import Tensor

from ...attacks.attack import Attack, AttackPart
from ...attacks.transfer.shadow_students import ShadowTeachers, shadow_teachers
from ...attacks.transfer.vote_attack import VoteAttack
from ...attacks.vertical.attack import VerticalAttack
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
from .resolve import AttackEntry, DefenseEntry, Prepares, ResolvedSuite, calibrated_for, set_up
from .source import ConfigError
from .tables.other_federations import TrainingSpec, TransferSpec, VerticalSpec
from .tables.suite import PlanChange


class OtherKind(ABC):
    """A kind of federations that are none of clients: which parts run on them, and how a defense is calibrated.

    ``table``: of the suite file. ``defense``, ``attacks``: the base classes of its parts. ``returns``: what a defense
    of this kind prepares.
    """

    table: ClassVar[str]
    defense: ClassVar[type[DefensePart]]
    attacks: ClassVar[tuple[type[AttackPart], ...]]
    returns: ClassVar[Prepares]

    @abstractmethod
    def plan(self, spec: Any, seed: int) -> Any:
        """Return the public plan of a federation. Raises ValueError if it cannot be set up."""

    @abstractmethod
    def check(self, suite: ResolvedSuite, federation: str, plan: Any) -> None:
        """Raise ConfigError for settings of a federation, or of attacks on it, that its plan does not fit."""

    def prepare(self, suite: ResolvedSuite, entry: DefenseEntry, federation: str, seed: int) -> tuple[Any, Any]:
        """Return a federation's plan, and a defense calibrated for it.

        Raises:
            ConfigError: if the federation cannot be set up, its plan breaks an assumption of the defense, or the
                defense returns no valid claims.
        """
        spec = getattr(suite.spec, self.table)[federation]
        plan = set_up(suite, self.table, federation, lambda: self.plan(spec, seed))
        self.check(suite, federation, plan)
        return plan, calibrated_for(suite, entry, federation, plan, self.returns)

    def defenses_on(self, suite: ResolvedSuite, federation: str) -> list[DefenseEntry]:
        """Return the defenses that run on a federation: those whose settings name it; if there are none, those whose
        settings name no federation.
        """
        entries = [entry for entry in suite.defenses if isinstance(entry.part.instance, self.defense)]
        for entry in entries:
            _check_settings(suite, entry)
        chosen = [entry for entry in entries if entry.federation == federation]
        return chosen or [entry for entry in entries if entry.federation is None]

    def attacks_on(self, suite: ResolvedSuite, federation: str) -> list[AttackEntry]:
        """Return the attacks that run on a federation, in the order of their base classes."""
        found = [entry for entry in suite.attacks if federation in entry.federations]
        return [entry for base in self.attacks for entry in found if isinstance(entry.part.instance, base)]


def _check_settings(suite: ResolvedSuite, entry: DefenseEntry) -> None:
    """Raise ConfigError for settings that only federations of clients have."""
    given = {"plan": entry.change != PlanChange(), "replicas": entry.replicas is not None}
    for key in [key for key, is_given in given.items() if is_given]:
        place = suite.source.where(("defenses", entry.label, key))
        raise ConfigError(
            f"{place}: defenses.{entry.label}.{key} changes federations of clients, and this defense runs on another "
            "kind, whose own table holds such settings"
        )


_LEAST_PEOPLE = 4
"""Of a federation whose labels are guessed in one run: at least two guesses are planned."""


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


class VerticalKind(OtherKind):
    """Vertical federations: parties with different columns of the same people."""

    table = "vertical"
    defense = VerticalDefense
    attacks = (VerticalAttack,)
    returns = Prepares(
        prepared=VerticalPrepared, protection=VerticalProtection, mappings={"laws": VerticalLaw, "spending": Callable}
    )

    def plan(self, spec: VerticalSpec, seed: int) -> VerticalPlan:
        _check_label(spec)
        return vertical_plan_of(spec, vertical_task_of(spec, seed))

    def check(self, suite: ResolvedSuite, federation: str, plan: VerticalPlan) -> None:
        spec = suite.spec.vertical[federation]
        prior = spec.audit.prior if spec.audit else None
        wrong: dict[tuple[str, ...], str] = {}
        if spec.known >= plan.people:
            wrong["known",] = f"known must be below people = {plan.people}, got {spec.known}"
        if spec.audit and spec.audit.design != "independent" and plan.people < _LEAST_PEOPLE:
            wrong["people",] = (
                f"people must be >= {_LEAST_PEOPLE} for design = {spec.audit.design!r}, which guesses about one half "
                f"of them from the other, got {plan.people}"
            )
        if prior is not None and len(prior) != plan.network.classes:
            classes = plan.network.classes
            wrong["audit", "prior"] = f"prior must have one probability per label, {classes}, got {len(prior)}"
        for key, words in wrong.items():
            raise ConfigError(f"{suite.source.where(('vertical', federation, *key))}: {words}")


def _check_label(spec: VerticalSpec) -> None:
    """Raise ValueError if the column of a file's labels is listed among the columns of a party."""
    name, options = name_and_options("dataset", spec.dataset)
    listed = () if isinstance(spec.columns, int) else chain(*spec.columns)
    label = options.get("label", "label")
    if names_a_file(name) and label in listed:
        raise ValueError(f"columns must not list {label!r}, which is the label: the active party holds it")


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


class TransferKind(OtherKind):
    """Transfers by answers, with attacks on votes, and membership attacks on shadow students."""

    table = "transfer"
    defense = TransferDefense
    attacks = (VoteAttack, Attack)
    returns = Prepares(prepared=PreparedTransfer, protection=TransferProtection)

    def plan(self, spec: TransferSpec, seed: int) -> TransferPlan:
        return transfer_plan_of(spec, transfer_task_of(spec, seed))

    def check(self, suite: ResolvedSuite, federation: str, plan: TransferPlan) -> None:
        for attack in self.attacks_on(suite, federation):
            teacher = getattr(attack.part.instance, "teacher", 0)
            if isinstance(attack.part.instance, VoteAttack) and teacher >= plan.teachers:
                place = suite.source.where(("attacks", attack.label, "teacher"))
                raise ConfigError(
                    f"{place}: attack {attack.label}: teacher must be below teachers = {plan.teachers}, got {teacher}"
                )
