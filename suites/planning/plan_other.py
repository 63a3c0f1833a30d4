"""Plan the trainings, attacks and audits of federations that are none of clients: vertical ones, and transfers.

An estimate of memory counts the arrays that a run certainly holds at once, as 32-bit floats, so that it is too low
rather than too high. What exceeds the memory of this machine would end without a message, after everything before it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...audit.claim import Claim
from ...audit.observer import ACTIVE_PARTY, PASSIVE_PARTY, Observer
from ...audit.parts import label
from ...defenses.defense import variant_of
from ...fl.plan import marks
from ...fl.transfer.task import TransferPlan
from ...fl.vertical.protection import VerticalPlan
from ..attacking.other_jobs import OtherAuditJob, OtherTrialJob
from ..config.other_federations import OtherKind, TransferKind, VerticalKind, small_plan
from ..config.resolve import DefenseEntry, ResolvedSuite, identity
from ..config.source import ConfigError, Source
from ..config.tables.other_federations import TransferSpec, VerticalSpec
from ..results.cell import Cell
from ..results.claims_file import PlannedClaim
from ..results.environment import hardware
from ..transfer import TransferAuditJob, TransferTrialJob
from ..vertical.audit import VerticalAuditJob
from ..vertical.runs import BLOCK
from ..vertical.trial import VerticalTrialJob
from .plan_cells import CellMaker, outside_facts, part_facts

_COPIES = 2
"""Of parameters that are trained: they and their gradients."""
_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class HeldArrays:
    """Arrays that a run holds at once.

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
        """Their memory in units of 2^30 bytes."""
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
    """Return the largest arrays of a vertical federation: its models, what is kept for attacks by ``observers``, and
    the runs of its audit that are made at once.
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
            what="what an adversary receives in all steps, with its own model in each",
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


@dataclass(frozen=True, kw_only=True)
class OtherWork:
    """All work on a suite's federations of one kind, and the claims that are stated about them."""

    trials: tuple[OtherTrialJob, ...]
    audits: tuple[OtherAuditJob, ...]
    claims: tuple[PlannedClaim, ...]


@dataclass(frozen=True, kw_only=True)
class OtherCells(CellMaker):
    """The cells of federations of one kind; ``models``: the name of each federation's model."""

    table: str
    models: dict[str, str]

    def cell(
        self, entry: DefenseEntry, federation: str, seed: int | None, *, configuration: Any = None, **facts: Any
    ) -> Cell:
        spec = getattr(self.suite.spec, self.table)[federation]
        data = label("dataset", spec.dataset)
        cell_id = identity(
            names=[federation, entry.label],
            data=self.suite.digests[data],
            defense=part_facts(entry),
            seed=seed,
            configuration=configuration,
            executor="sequential",
            **{self.table: spec.model_dump(mode="json")},
            **outside_facts(spec),
            **facts,
        )
        shared = self.shared(entry, federation, seed, dataset=data, model=self.models[federation])
        return Cell(cell_id=cell_id, facts=shared | facts)


class OtherPlanner(ABC):
    """Plans the work on one suite's federations of one kind.

    ``kind``: its tables and parts. ``trial_job``, ``audit_job``: the classes of its jobs. ``audit_name``: of its audit
    in result rows.
    """

    kind: ClassVar[OtherKind]
    audit_name: ClassVar[str]
    trial_job: ClassVar[type[OtherTrialJob]]
    audit_job: ClassVar[type[OtherAuditJob]]

    def __init__(self, suite: ResolvedSuite, run_id: str) -> None:
        self.suite = suite
        self.specs: dict[str, Any] = getattr(suite.spec, self.kind.table)
        models = {name: self.model_words(spec) for name, spec in self.specs.items()}
        self.cells = OtherCells(suite=suite, run_id=run_id, table=self.kind.table, models=models)
        self._prepared: dict[tuple[str, str, int], Any] = {}

    @abstractmethod
    def held(self, name: str, plan: Any) -> list[HeldArrays]:
        """Return the largest arrays that the work on a federation holds in memory at once, given its plan."""

    @abstractmethod
    def model_words(self, spec: Any) -> str:
        """Return the name of a federation's model, for its result rows."""

    def rounds(self, plan: Any) -> int:
        """Return the number of rounds (epochs) that the claims about a plan count."""
        return int(plan.rounds)

    def plan(self) -> OtherWork:
        """Calibrate every defense for each federation of this kind, and plan all work.

        Raises:
            ConfigError: for a federation that cannot be set up or does not fit into memory, or a defense that does
                not fit it.
        """
        cases = [(entry, name) for name in self.specs for entry in self.kind.defenses_on(self.suite, name)]
        seeds = self.suite.seeds
        audited = [
            (entry, name, claim)
            for entry, name in cases
            if self.specs[name].audit is not None
            for claim in self._claims(entry, name)
        ]
        alpha = self.suite.spec.alpha_of_kind / max(1, len(audited))
        return OtherWork(
            trials=tuple(self._trial(entry, name, seed) for entry, name in cases for seed in seeds[: entry.seeds]),
            audits=tuple(self._audit(*one, alpha) for one in audited),
            claims=tuple(
                self._stated(entry, name, claim) for entry, name in cases for claim in self._claims(entry, name)
            ),
        )

    def _of(self, entry: DefenseEntry, name: str, seed: int) -> Any:
        key = (entry.label, name, seed)
        if key not in self._prepared:
            self._prepared[key] = plan, _ = self.kind.prepare(self.suite, entry, name, seed)
            check_memory(self.held(name, plan), (self.kind.table, name), self.specs[name], self.suite.source)
        return self._prepared[key]

    def _claims(self, entry: DefenseEntry, name: str) -> tuple[Claim, ...]:
        # What claims depend on follows from the settings and the data set's shape, so it is that of all seeds.
        return tuple(self._of(entry, name, self.suite.seeds[0])[1].claims)

    def _stated(self, entry: DefenseEntry, name: str, claim: Claim) -> PlannedClaim:
        plan, prepared = self._of(entry, name, self.suite.seeds[0])
        return PlannedClaim(
            defense=entry.label,
            federation=name,
            control=entry.part.instance.control,
            claim=claim,
            variant=variant_of(entry.part.instance),
            marks=marks(self.rounds(plan)),
            spending=prepared.spending.get(claim.claim_id),
        )

    def _trial(self, entry: DefenseEntry, name: str, seed: int) -> OtherTrialJob:
        _, prepared = self._of(entry, name, seed)
        return self.trial_job(
            federation=self.specs[name],
            prepared=prepared,
            seed=seed,
            training=self.cells.training(entry, name, seed),
            attacks=tuple(self.cells.attack(entry, name, seed, one) for one in self.kind.attacks_on(self.suite, name)),
        )

    def _audit(self, entry: DefenseEntry, name: str, claim: Claim, alpha: float) -> OtherAuditJob:
        cell = self.cells.cell(
            entry,
            name,
            None,
            role="audit",
            attack=self.audit_name,
            attack_version="1",
            observer=str(claim.observer),
            claim_id=claim.claim_id,
            configuration=[alpha, list(self.suite.seeds[:1])],
        )
        return self.audit_job(
            federation=self.specs[name],
            defense=entry.part.instance,
            claim=claim,
            seed=self.suite.seeds[0],
            alpha=alpha,
            cell=cell,
        )


class VerticalPlanner(OtherPlanner):
    """Plans the work on one suite's vertical federations."""

    kind = VerticalKind()
    audit_name = "vertical_runs"
    trial_job = VerticalTrialJob
    audit_job = VerticalAuditJob

    def held(self, name: str, plan: VerticalPlan) -> list[HeldArrays]:
        spec: VerticalSpec = self.specs[name]
        # An audit by one run keeps what a passive party receives.
        audited = {PASSIVE_PARTY} if spec.audit is not None and spec.audit.design != "independent" else set()
        attacks = {attack.part.instance.observer for attack in self.kind.attacks_on(self.suite, name)}
        return of_vertical(spec, plan, audited | attacks)

    def model_words(self, spec: Any) -> str:
        if spec.summed and not spec.hidden:
            return "vertical logistic"
        sizes = "-".join(str(size) for size in spec.hidden) or "linear"
        top = "sum" if spec.summed else "-".join(str(size) for size in spec.top_hidden) or "linear"
        return f"split {sizes}/{top}"

    def rounds(self, plan: VerticalPlan) -> int:
        return plan.epochs


class TransferPlanner(OtherPlanner):
    """Plans the work on one suite's transfers."""

    kind = TransferKind()
    audit_name = "vote_mechanism"
    trial_job = TransferTrialJob
    audit_job = TransferAuditJob

    def held(self, name: str, plan: TransferPlan) -> list[HeldArrays]:
        spec: TransferSpec = self.specs[name]
        return of_transfer(
            spec, plan, max((attack.shadows or 0 for attack in self.kind.attacks_on(self.suite, name)), default=0)
        )

    def model_words(self, spec: Any) -> str:
        return label("model", spec.model)
