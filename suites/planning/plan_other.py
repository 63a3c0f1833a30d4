"""Plan the trainings, attacks and audits of federations other than those of clients: vertical ones, and transfers.

An estimate of memory counts the arrays that a run certainly holds at once, as 32-bit floats, so that it is too low
rather than too high. What exceeds the memory of this machine would end without a message, after everything before it.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from ...attacks.attack import Attack
from ...attacks.transfer.vote_attack import VoteAttack
from ...attacks.vertical.attack import VerticalAttack
from ...audit.observer import ACTIVE_PARTY, PASSIVE_PARTY, Observer
from ...audit.parts import label, name_and_options
from ...defenses.transfer.defense import PreparedTransfer, TransferDefense
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ...fl.data.files.lookup import names_a_file
from ...fl.transfer.protection import TransferProtection
from ...fl.transfer.task import TransferPlan
from ...fl.vertical.protection import VerticalLaw, VerticalPlan, VerticalProtection
from ..attacking.jobs import OtherAuditJob, TrainingJob
from ..config.other_federations import (
    small_plan,
    transfer_plan_of,
    transfer_task_of,
    vertical_plan_of,
    vertical_task_of,
)
from ..config.resolve import DefenseEntry, Prepares, ResolvedSuite, calibrated_for, set_up
from ..config.source import ConfigError, Source
from ..config.tables.other_federations import TransferSpec, VerticalSpec
from ..config.tables.suite import PlanChange
from ..results.claims_file import PlannedClaim
from ..results.environment import hardware
from ..transfer import TransferAuditJob, TransferTrialJob
from ..vertical.audit import VerticalAuditJob
from ..vertical.runs import BLOCK
from ..vertical.trial import VerticalTrialJob
from .plan_cells import FederationKind, outside_facts

_COPIES = 2
"""Of parameters that are trained: they and their gradients."""
_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class HeldArrays:
    """The arrays that a run holds in memory at once.

    Args:
        what: in words.
        numbers: how many numbers they hold.
        keys: the keys of the federation's table that determine it, dotted.
    """

    what: str
    numbers: int
    keys: tuple[str, ...]

    @property
    def gigabytes(self) -> float:
        """The memory of the arrays, in units of 2^30 bytes."""
        return self.numbers * _BYTES / 2**30


def check_memory(held: Sequence[HeldArrays], place: tuple[str, ...], spec: Any, source: Source) -> None:
    """Raise ConfigError if some arrays of a federation exceed the memory of this machine.

    ``place``: the federation's table in the suite file; ``spec``: its settings.
    """
    limit = float(hardware()["memory_gb"])
    largest = max(held, key=lambda one: one.numbers)
    if not 0 < limit < largest.gigabytes:  # Systems that do not state their memory have 0.
        return
    key = max(largest.keys, key=lambda name: _size(_value(spec, name)))
    value = _value(spec, key)
    given = list(value) if isinstance(value, tuple) else value
    raise ConfigError(
        f"{source.where((*place, *key.split('.')))}: {'.'.join((*place, key))} = {given}: {largest.what} "
        f"would need about {largest.gigabytes:,.0f} GB, more than the {limit:,g} GB of this machine's memory; "
        f"choose smaller values of {', '.join(largest.keys)}"
    )


def _value(spec: Any, name: str) -> Any:
    for part in name.split("."):
        spec = getattr(spec, part, None)
    return spec


def _size(value: Any) -> int:
    """The largest whole number of a setting, a number or a list of numbers."""
    numbers = value if isinstance(value, tuple) else (value,)
    return max((one for one in numbers if isinstance(one, int)), default=0)


def of_vertical(spec: VerticalSpec, plan: VerticalPlan, observers: set[Observer]) -> list[HeldArrays]:
    """Return the largest arrays of a vertical federation: its models, what is stored for attacks by ``observers``, and
    the audit runs that are made at once.
    """
    network, sizes = plan.network, ("embedding", "hidden", "top_hidden")
    top = 0 if network.top is None else network.top.dim
    models = _COPIES * (sum(one.dim for one in network.bottoms) + top)
    # Of every step the observer's own model and its messages are kept.
    rows, own = plan.people * plan.epochs, network.bottoms[0].dim
    kept = {
        PASSIVE_PARTY: plan.steps * own + rows * network.embedding,
        ACTIVE_PARTY: plan.steps * top + 2 * rows * network.passive * network.embedding,
    }
    seen = sum(numbers for observer, numbers in kept.items() if observer in observers)
    found = [
        HeldArrays(what="the models of one training", numbers=models, keys=sizes),
        HeldArrays(
            what="what an adversary receives in all steps, and its own model at each step",
            numbers=seen,
            keys=(*sizes, "epochs"),
        ),
    ]
    if spec.audit is None or spec.audit.design != "independent":
        return found
    runs, small = min(BLOCK, spec.audit.replicas), small_plan(plan, spec.audit.people, spec.audit.batch)
    messages = small.people * small.epochs * network.embedding  # Of the one party whose messages an audit reads.
    what = f"the models and messages of {runs} runs of the audit at once"
    keys = (*sizes, "epochs", "audit.people")
    return [*found, HeldArrays(what=what, numbers=runs * (models + messages), keys=keys)]


def of_transfer(spec: TransferSpec, plan: TransferPlan, shadows: int) -> list[HeldArrays]:
    """Return the largest arrays of a transfer: all teachers, their answers, and the students; ``shadows``: the largest
    number of shadow students of its attacks.
    """
    sets, answers = max(1, shadows), plan.teachers * plan.queries * plan.classes
    return [
        HeldArrays(
            what=f"{sets * plan.teachers:,} teachers",
            numbers=sets * plan.teachers * plan.layout.dim,
            keys=("teachers",),
        ),
        HeldArrays(
            what=f"the teachers' answers in {max(sets, spec.students):,} runs",
            numbers=max(sets, spec.students) * answers,
            keys=("teachers", "queries", "students"),
        ),
        HeldArrays(
            what=f"{max(sets, spec.students):,} students",
            numbers=max(sets, spec.students) * plan.layout.dim,
            keys=("students",),
        ),
    ]


class OtherKind(FederationKind):
    """A kind of federations whose participants are no clients (vertical federations or transfers), with all work on
    them.

    ``returns``: what a defense of this kind prepares.
    ``trial_job``, ``audit_job``: the classes of its jobs. ``audit_name``: the name of its audit in
    result rows.
    """

    returns: ClassVar[Prepares]
    trial_job: ClassVar[type[Any]]
    audit_job: ClassVar[type[OtherAuditJob]]
    audit_name: ClassVar[str]

    def __init__(self, suite: ResolvedSuite, run_id: str) -> None:
        super().__init__(suite, run_id)
        for entry in suite.defenses:
            if isinstance(entry.part.instance, self.defense):
                _check_settings(suite, entry)

    @abstractmethod
    def plan_of(self, spec: Any, seed: int) -> Any:
        """Return the public plan of a federation. Raises ValueError if it cannot be set up."""

    @abstractmethod
    def check(self, federation: str, plan: Any) -> None:
        """Raise ConfigError if settings of a federation, or of attacks on it, do not fit its plan."""

    @abstractmethod
    def held(self, federation: str, plan: Any) -> list[HeldArrays]:
        """Return the largest arrays that the work on a federation holds in memory at once, given its plan."""

    def prepare(self, entry: DefenseEntry, federation: str, seed: int) -> Any:
        spec = self.specs[federation]
        plan = set_up(self.suite, self.table, federation, lambda: self.plan_of(spec, seed))
        self.check(federation, plan)
        prepared = calibrated_for(self.suite, entry, federation, plan, self.returns)
        check_memory(self.held(federation, plan), (self.table, federation), spec, self.suite.source)
        return prepared

    def settings(self, entry: DefenseEntry, federation: str, measured_on: Any) -> dict[str, Any]:
        spec = self.specs[federation]
        return {
            "data": self.suite.digests[label("dataset", spec.dataset)],
            "executor": "sequential",
            self.table: spec.model_dump(mode="json"),
            **outside_facts(spec),
        }

    def trials(self) -> list[TrainingJob]:
        """Plan the training of every case, with the attacks on it."""
        return [self._trial(*case) for case in self.cases()]

    def audits(self) -> list[OtherAuditJob]:
        """Plan the audit of every claim about a federation with an ``audit`` table."""
        audited = [item for item in self.stated() if self.specs[item.federation].audit is not None]
        alpha = self.suite.spec.alpha_of_kind / max(1, len(audited))
        return [self._audit(item, alpha) for item in audited]

    def _trial(self, entry: DefenseEntry, name: str, seed: int) -> TrainingJob:
        job: TrainingJob = self.trial_job(
            federation=self.specs[name],
            prepared=self.of(entry, name, seed),
            seed=seed,
            training=self.training(entry, name, seed),
            attacks=tuple(self.attack(entry, name, seed, one) for one in self.attacks_on(name)),
        )
        return job

    def _audit(self, item: PlannedClaim, alpha: float) -> OtherAuditJob:
        entry = next(entry for entry in self.suite.defenses if entry.label == item.defense)
        cell = self.cell(
            entry,
            item.federation,
            None,
            role="audit",
            attack=self.audit_name,
            claim=item.claim,
            configuration=[alpha, list(self.suite.seeds[:1])],
        )
        return self.audit_job(
            federation=self.specs[item.federation],
            defense=entry.part.instance,
            claim=item.claim,
            seed=self.suite.seeds[0],
            alpha=alpha,
            cell=cell,
        )


def _check_settings(suite: ResolvedSuite, entry: DefenseEntry) -> None:
    """Raise ConfigError for settings that only federations of clients have."""
    given = {"plan": entry.change != PlanChange(), "replicas": entry.spec.replicas is not None}
    for key in [key for key, is_given in given.items() if is_given]:
        place = suite.source.where(("defenses", entry.label, key))
        raise ConfigError(
            f"{place}: defenses.{entry.label}.{key} changes federations of clients, and this defense runs on another "
            "kind, whose own table holds such settings"
        )


_LEAST_PEOPLE = 4
"""Of a federation whose labels are guessed in one run: at least two guesses are planned."""


class VerticalKind(OtherKind):
    """Vertical federations: parties with different columns of the same people."""

    table = "vertical"
    defense = VerticalDefense
    attacks = (VerticalAttack,)
    returns = Prepares(
        prepared=VerticalPrepared, protection=VerticalProtection, mappings={"laws": VerticalLaw, "spending": Callable}
    )
    trial_job = VerticalTrialJob
    audit_job = VerticalAuditJob
    audit_name = "vertical_runs"

    def plan_of(self, spec: VerticalSpec, seed: int) -> VerticalPlan:
        _check_label(spec)
        return vertical_plan_of(spec, vertical_task_of(spec, seed))

    def check(self, federation: str, plan: VerticalPlan) -> None:
        spec: VerticalSpec = self.specs[federation]
        wrong: dict[tuple[str, ...], str] = {}
        if spec.known >= plan.people:
            wrong["known",] = f"known must be below people = {plan.people}, got {spec.known}"
        if spec.audit and spec.audit.design != "independent" and plan.people < _LEAST_PEOPLE:
            wrong["people",] = (
                f"people must be >= {_LEAST_PEOPLE} for design = {spec.audit.design!r}, which guesses the labels of "
                f"one half of the people from those of the other half, got {plan.people}"
            )
        for key, words in wrong.items():
            raise ConfigError(f"{self.suite.source.where((self.table, federation, *key))}: {words}")

    def held(self, federation: str, plan: VerticalPlan) -> list[HeldArrays]:
        spec: VerticalSpec = self.specs[federation]
        # An audit by one run keeps what a passive party receives.
        audited = {PASSIVE_PARTY} if spec.audit is not None and spec.audit.design != "independent" else set()
        attacks = {attack.part.instance.observer for attack in self.attacks_on(federation)}
        return of_vertical(spec, plan, audited | attacks)

    def model_words(self, spec: VerticalSpec) -> str:
        if spec.summed and not spec.hidden:
            return "vertical logistic"
        sizes = "-".join(str(size) for size in spec.hidden) or "linear"
        top = "sum" if spec.summed else "-".join(str(size) for size in spec.top_hidden) or "linear"
        return f"split {sizes}/{top}"

    def rounds(self, federation: str) -> int:
        return int(self.specs[federation].epochs)


def _check_label(spec: VerticalSpec) -> None:
    """Raise ValueError if the column of a file's labels is listed among the columns of a party."""
    name, options = name_and_options("dataset", spec.dataset)
    listed = () if isinstance(spec.columns, int) else chain(*spec.columns)
    label = options.get("label", "label")
    if names_a_file(name) and label in listed:
        raise ValueError(f"columns must not list {label!r}, which is the label: the active party holds it")


class TransferKind(OtherKind):
    """Transfers by answers, with attacks on votes, and membership attacks on shadow students."""

    table = "transfer"
    defense = TransferDefense
    attacks = (VoteAttack, Attack)
    returns = Prepares(prepared=PreparedTransfer, protection=TransferProtection)
    trial_job = TransferTrialJob
    audit_job = TransferAuditJob
    audit_name = "vote_mechanism"

    def plan_of(self, spec: TransferSpec, seed: int) -> TransferPlan:
        return transfer_plan_of(spec, transfer_task_of(spec, seed))

    def check(self, federation: str, plan: TransferPlan) -> None:
        for attack in self.attacks_on(federation):
            teacher = getattr(attack.part.instance, "teacher", 0)
            if isinstance(attack.part.instance, VoteAttack) and teacher >= plan.teachers:
                place = self.suite.source.where(("attacks", attack.label, "teacher"))
                raise ConfigError(
                    f"{place}: attack {attack.label}: teacher must be below teachers = {plan.teachers}, got {teacher}"
                )

    def held(self, federation: str, plan: TransferPlan) -> list[HeldArrays]:
        shadows = max((attack.shadows or 0 for attack in self.attacks_on(federation)), default=0)
        return of_transfer(self.specs[federation], plan, shadows)

    def rounds(self, federation: str) -> int:
        return 1
