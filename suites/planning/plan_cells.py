"""Calibrate each defense once per federation and seed, and give each unit of work (cell) a hash that identifies it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from ...audit.claim import Claim
from ...audit.parts import label
from ...defenses.defense import Defense, Prepared, variant_of
from ...fl.plan import marks
from ..attacking.finished_cells import AttackCell
from ..config.catalogue import outside_versions
from ..config.resolve import AttackEntry, DefenseEntry, ResolvedSuite, identity, plain_data, prepare
from ..config.tables.suite import FederationSpec, PlanChange
from ..results.cell import Cell
from ..results.claims_file import PlannedClaim


@dataclass(frozen=True, kw_only=True)
class CellMaker(ABC):
    """A maker of a run's cells, which are the smallest units of work that are stored and resumed."""

    suite: ResolvedSuite
    run_id: str

    @abstractmethod
    def cell(
        self, entry: DefenseEntry, federation: str, seed: int | None, *, configuration: Any = None, **facts: Any
    ) -> Cell:
        """Make one cell (unit of work); its id is a hash of the arguments and of all settings of the suite that they
        refer to.

        Args:
            configuration: all other data that determine its values.
            facts: the other fields that all its rows share.
        """

    def training(self, entry: DefenseEntry, federation: str, seed: int) -> Cell:
        """Make the cell of one training."""
        return self.cell(entry, federation, seed, role="utility", attack="training", attack_version="1")

    def attack(self, entry: DefenseEntry, federation: str, seed: int, attack: AttackEntry) -> AttackCell:
        """Make the cell of one attack on one training."""
        cell = self.cell(
            entry,
            federation,
            seed,
            role="null" if attack.part.instance.null else "attack",
            attack=attack.label,
            attack_version=attack.part.version,
            observer=str(attack.observer),
            configuration=attack.configuration,
        )
        return AttackCell(cell=cell, entry=attack)

    def shared(
        self, entry: DefenseEntry, federation: str, seed: int | None, *, dataset: str, model: str
    ) -> dict[str, Any]:
        """Return the fields that all rows of a cell share, whatever it measures."""
        return {
            "run_id": self.run_id,
            "suite": self.suite.spec.name,
            "suite_version": self.suite.spec.version,
            "federation": federation,
            "dataset": dataset,
            "dataset_sha256": self.suite.digests[dataset],
            "model": model,
            "defense": entry.label,
            "defense_version": entry.part.version,
            "control": entry.part.instance.control,
            "variant": variant_of(entry.part.instance),
            "seed": seed,
        }


class ClientCells(CellMaker):
    """The cells of federations of clients."""

    def cell(
        self,
        entry: DefenseEntry,
        federation: str,
        seed: int | None,
        *,
        configuration: Any = None,
        measured_on: FederationSpec | None = None,
        **facts: Any,
    ) -> Cell:
        """Make one cell, as every maker.

        ``measured_on``: the data and model that were used, where they are not the federation's own.
        """
        spec = self.suite.spec.federations[federation]
        basis = self.suite.spec.federations[spec.calibrated_on] if spec.calibrated_on else None
        used = measured_on or spec
        cell_id = identity(
            # Two labels for one configuration are two cells of a run, each with rows of its own.
            names=[federation, entry.label],
            federation=spec.model_dump(mode="json"),
            basis=basis.model_dump(mode="json") if basis else None,
            data=[self.suite.digests[label("dataset", one.dataset)] for one in (used, spec, basis) if one is not None],
            defense=part_facts(entry),
            seed=seed,
            configuration=configuration,
            # The number of processes is no part of it, because it changes no value.
            executor=spec.executor or "sequential",
            device=self.suite.spec.device,
            **outside_facts(used, spec, basis, entry.change, self.suite.spec.audit if measured_on else None),
            **facts,
        )
        model, dataset = label("model", used.model), label("dataset", used.dataset)
        shared = self.shared(entry, federation, seed, dataset=dataset, model=model)
        return Cell(cell_id=cell_id, facts=shared | facts)


def outside_facts(*tables: BaseModel | None) -> dict[str, Any]:
    """Return the versions of the parts from outside that the tables name, as a fact for a hash; no fact where there are
    none, so that all other cells keep their identity.
    """
    versions = outside_versions(tables)
    return {"outside": versions} if versions else {}


def part_facts(entry: DefenseEntry) -> list[Any]:
    """Return the facts that identify a defense: its class, code version and configuration, and its changes to the
    federation's plan.
    """
    change = entry.change.model_dump(mode="json")
    return [entry.part.path, entry.part.version, plain_data(entry.defense.fields()), change]


@dataclass(frozen=True, kw_only=True)
class PreparedDefenses:
    """The calibrated defenses of one suite; each is calibrated when it is first needed."""

    suite: ResolvedSuite
    _prepared: dict[tuple[str, str, int], Prepared] = field(default_factory=dict)

    def on(self, federation: str) -> list[DefenseEntry]:
        """Return the defenses that run on a federation: those whose settings name it; if there are none, those whose
        settings name no federation.

        A federation that borrows its calibration shows the defenses of the federation that it borrows from.
        """
        own = self.suite.spec.federations[federation].calibrated_on or federation
        entries = [entry for entry in self.suite.defenses if isinstance(entry.part.instance, Defense)]
        chosen = [entry for entry in entries if entry.federation == own]
        return chosen or [entry for entry in entries if entry.federation is None]

    def seeds(self, entry: DefenseEntry) -> tuple[int, ...]:
        """Return the seeds on which a defense runs."""
        return self.suite.seeds[: entry.seeds]

    def of(self, entry: DefenseEntry, federation: str, seed: int) -> Prepared:
        """Return the defense calibrated for a federation's plan; raise ConfigError if the plan violates one of the
        defense's assumptions.
        """
        key = (entry.label, federation, seed)
        # Calibration may take seconds, and trials, claims and audits all need it.
        if key not in self._prepared:
            self._prepared[key] = prepare(self.suite, entry, federation, seed)
        return self._prepared[key]

    def claims(self, entry: DefenseEntry, federation: str, seed: int) -> tuple[Claim, ...]:
        """Return a defense's claims about this federation's own plan; empty if the defense uses another federation's
        calibration.
        """
        # A borrowed calibration is for another plan, and nothing is claimed about this one.
        borrowed = self.suite.spec.federations[federation].calibrated_on is not None
        return () if borrowed else tuple(self.of(entry, federation, seed).claims)

    def stated(self) -> list[PlannedClaim]:
        """Return every claim of the suite once, even if several seeds state it."""
        found: dict[tuple[str, str, str], PlannedClaim] = {}
        for name in self.suite.spec.federations:
            for entry in self.on(name):
                for seed in self.seeds(entry):
                    spending = self.of(entry, name, seed).spending
                    for claim in self.claims(entry, name, seed):
                        stated = PlannedClaim(
                            defense=entry.label,
                            federation=name,
                            control=entry.defense.control,
                            claim=claim,
                            variant=variant_of(entry.defense),
                            marks=marks(self.suite.spec.federations[name].rounds),
                            spending=spending.get(claim.claim_id),
                        )
                        # Equal claims of several seeds are one claim: its audit pools the seeds.
                        found.setdefault((entry.label, name, claim.claim_id), stated)
        return list(found.values())


def change_of(entry: DefenseEntry, spec: FederationSpec) -> PlanChange:
    """Return how the defense changes the federation's plan; a defense that uses another federation's calibration
    changes nothing.
    """
    return entry.change if spec.calibrated_on is None else PlanChange()
