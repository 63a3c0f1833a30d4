"""Plan the trainings, attacks and audits of federations that are none of clients: vertical ones, and transfers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from ...audit.claim import Claim
from ...audit.parts import label
from ...defenses.defense import variant_of
from ...fl.plan import marks
from ..config.identity import identity
from ..config.resolve import AttackEntry, DefenseEntry, ResolvedSuite
from ..jobs.cell import Cell
from ..jobs.other_jobs import OtherAuditJob, OtherTrialJob
from ..jobs.planned_claim import PlannedClaim
from ..jobs.trial_job import AttackCell
from .memory_estimate import HeldArrays, check_memory
from .plan_cells import outside_facts, part_facts


@dataclass(frozen=True, kw_only=True)
class OtherWork:
    """All work on a suite's federations of one kind, and the claims that are stated about them."""

    trials: tuple[OtherTrialJob, ...]
    audits: tuple[OtherAuditJob, ...]
    claims: tuple[PlannedClaim, ...]


class OtherPlanner(ABC):
    """Plans the work on one suite's federations of one kind; subclasses name the kind.

    ``table``: of the suite file. ``trial_job``, ``audit_job``: the classes of its jobs. ``audit_name``: of its audit
    in result rows.
    """

    table: ClassVar[str]
    audit_name: ClassVar[str]
    trial_job: ClassVar[type[OtherTrialJob]]
    audit_job: ClassVar[type[OtherAuditJob]]

    def __init__(self, suite: ResolvedSuite, run_id: str) -> None:
        self.suite, self.run_id = suite, run_id
        self.specs: dict[str, Any] = getattr(suite.spec, self.table)
        self._prepared: dict[tuple[str, str, int], Any] = {}

    @abstractmethod
    def defenses(self, name: str) -> list[DefenseEntry]:
        """Return the defenses that run on a federation."""

    @abstractmethod
    def attacks(self, name: str) -> list[AttackEntry]:
        """Return the attacks that run on a federation."""

    @abstractmethod
    def prepare(self, entry: DefenseEntry, name: str, seed: int) -> tuple[Any, Any]:
        """Return the plan of a federation and the defense calibrated for it."""

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
        cases = [(entry, name) for name in self.specs for entry in self.defenses(name)]
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
            self._prepared[key] = plan, _ = self.prepare(entry, name, seed)
            check_memory(self.held(name, plan), (self.table, name), self.specs[name], self.suite.source)
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
        training = self._cell(entry, name, seed, role="utility", attack="training", attack_version="1")
        return self.trial_job(
            federation=self.specs[name],
            prepared=prepared,
            seed=seed,
            training=training,
            attacks=tuple(self._attack(entry, name, seed, attack) for attack in self.attacks(name)),
        )

    def _audit(self, entry: DefenseEntry, name: str, claim: Claim, alpha: float) -> OtherAuditJob:
        cell = self._cell(
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

    def _attack(self, entry: DefenseEntry, name: str, seed: int, attack: AttackEntry) -> AttackCell:
        part = attack.part.instance
        cell = self._cell(
            entry,
            name,
            seed,
            role="null" if part.null else "attack",
            attack=attack.label,
            attack_version=attack.part.version,
            observer=str(part.observer),
            configuration=attack.configuration,
        )
        return AttackCell(cell=cell, entry=attack)

    def _cell(
        self, entry: DefenseEntry, name: str, seed: int | None, *, configuration: Any = None, **facts: Any
    ) -> Cell:
        """One cell; its id is a hash of everything that determines its rows."""
        spec = self.specs[name]
        data = label("dataset", spec.dataset)
        digest = self.suite.digests[data]
        cell_id = identity(
            names=[name, entry.label],
            data=digest,
            defense=part_facts(entry),
            seed=seed,
            configuration=configuration,
            executor="sequential",
            **{self.table: spec.model_dump(mode="json")},
            **outside_facts(spec),
            **facts,
        )
        shared = {
            "run_id": self.run_id,
            "suite": self.suite.spec.name,
            "suite_version": self.suite.spec.version,
            "federation": name,
            "dataset": data,
            "dataset_sha256": digest,
            "model": self.model_words(spec),
            "defense": entry.label,
            "defense_version": entry.part.version,
            "control": entry.part.instance.control,
            "variant": variant_of(entry.part.instance),
            "seed": seed,
        }
        return Cell(cell_id=cell_id, facts=shared | facts)
