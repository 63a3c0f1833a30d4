"""Define a kind of federations in a suite: its calibrated defenses, the privacy claims that they state, and its cells
(units of work).

A cell is a unit of work; a hash of everything that determines its rows identifies it.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pydantic import BaseModel

from ...attacks.attack import Attack, AttackPart
from ...audit.claim import Claim
from ...audit.parts import label
from ...defenses.defense import Defense, DefensePart, Prepared, variant_of
from ...fl.plan import marks
from ..attacking.finished_cells import AttackCell
from ..attacking.trial import TrialJob
from ..config.catalogue import outside_versions
from ..config.resolve import AttackEntry, DefenseEntry, ResolvedSuite, identity, plain_data, prepare
from ..config.tables.suite import FederationSpec, PlanChange
from ..results.cell import Cell
from ..results.claims_file import PlannedClaim


class FederationKind(ABC):
    """The federations of one kind in a suite, with the defenses on each, the claims about it, and the cells (units of
    work).

    ``table``: of the suite file. ``defense``, ``attacks``: the base classes of the parts that run on such federations.
    """

    table: ClassVar[str]
    defense: ClassVar[type[DefensePart]]
    attacks: ClassVar[tuple[type[AttackPart], ...]]

    def __init__(self, suite: ResolvedSuite, run_id: str) -> None:
        self.suite, self.run_id = suite, run_id
        self.specs: dict[str, Any] = getattr(suite.spec, self.table)
        self._prepared: dict[tuple[str, str, int], Any] = {}

    @abstractmethod
    def prepare(self, entry: DefenseEntry, federation: str, seed: int) -> Any:
        """Return a defense calibrated for a federation's plan.

        Raises:
            ConfigError: if the federation cannot be set up, its plan breaks an assumption of the defense, or the
                defense returns no valid claims.
        """

    @abstractmethod
    def settings(self, entry: DefenseEntry, federation: str, measured_on: Any) -> dict[str, Any]:
        """Return the facts about a federation, apart from the defense, that determine the result rows of its cells
        (units of work). ``measured_on`` names the data and the model of an audit that trains others than the federation
        does.
        """

    def model_words(self, spec: Any) -> str:
        """Return the name of a federation's model, for its result rows."""
        return label("model", spec.model)

    def rounds(self, federation: str) -> int:
        """Return the number of rounds over which claims about a federation are stated."""
        return int(self.specs[federation].rounds)

    def on(self, federation: str) -> list[DefenseEntry]:
        """Return the defenses that run on a federation. These are the defenses whose settings name the federation; if
        no settings name it, they are the defenses that name no federation.

        A federation that borrows its calibration shows the defenses of the federation that it borrows from.
        """
        own = self._borrowed(federation) or federation
        entries = [entry for entry in self.suite.defenses if isinstance(entry.part.instance, self.defense)]
        chosen = [entry for entry in entries if entry.spec.federation == own]
        return chosen or [entry for entry in entries if entry.spec.federation is None]

    def attacks_on(self, federation: str) -> list[AttackEntry]:
        """Return the attacks that run on a federation, in the order of their base classes."""
        found = [entry for entry in self.suite.attacks if federation in entry.federations]
        return [entry for base in self.attacks for entry in found if isinstance(entry.part.instance, base)]

    def cases(self) -> list[tuple[DefenseEntry, str, int]]:
        """Return every combination of a defense, a federation on which it runs and a seed, federation by federation."""
        return [(entry, name, seed) for name in self.specs for entry in self.on(name) for seed in self.seeds(entry)]

    def seeds(self, entry: DefenseEntry) -> tuple[int, ...]:
        """Return the seeds on which a defense runs."""
        return self.suite.seeds[: entry.spec.seeds]

    def of(self, entry: DefenseEntry, federation: str, seed: int) -> Any:
        """Return the prepared defense of a case (defense, federation and seed); ``prepare`` is called only once for
        each case.
        """
        key = (entry.label, federation, seed)
        # Calibration may take seconds, and trials, claims and audits all need it.
        if key not in self._prepared:
            self._prepared[key] = self.prepare(entry, federation, seed)
        return self._prepared[key]

    def claims(self, entry: DefenseEntry, federation: str, seed: int) -> tuple[Claim, ...]:
        """Return a defense's claims about this federation's own plan; empty if the defense uses another federation's
        calibration.
        """
        # A borrowed calibration is for another plan, and nothing is claimed about this one.
        return () if self._borrowed(federation) else tuple(self.of(entry, federation, seed).claims)

    def stated(self) -> list[PlannedClaim]:
        """Return every claim about these federations, without duplicates from several seeds."""
        found: dict[tuple[str, str, str], PlannedClaim] = {}
        for entry, name, seed in self.cases():
            for claim in self.claims(entry, name, seed):
                stated = PlannedClaim(
                    defense=entry.label,
                    federation=name,
                    control=entry.part.instance.control,
                    claim=claim,
                    variant=variant_of(entry.part.instance),
                    marks=marks(self.rounds(name)),
                    spending=self.of(entry, name, seed).spending.get(claim.claim_id),
                )
                # Equal claims of several seeds are one claim: its audit pools the seeds.
                found.setdefault((entry.label, name, claim.claim_id), stated)
        return list(found.values())

    def cell(
        self,
        entry: DefenseEntry,
        federation: str,
        seed: int | None,
        *,
        claim: Claim | None = None,
        configuration: Any = None,
        measured_on: Any = None,
        **measured: Any,
    ) -> Cell:
        """Make one cell (unit of work); its id is a hash of the arguments and of all settings of the suite that they
        refer to.

        Args:
            claim: the claim that it is about, if any.
            configuration: all other data that determine its values.
            measured_on: the data and model that were used, where they are not the federation's own.
            measured: the other fields that all its rows share.
        """
        about = {} if claim is None else {"observer": str(claim.observer), "claim_id": claim.claim_id}
        facts = {"attack_version": "1", **about, **measured}
        used = measured_on or self.specs[federation]
        cell_id = identity(
            # Two labels for one configuration are two cells of a run, each with rows of its own.
            names=[federation, entry.label],
            defense=part_facts(entry),
            seed=seed,
            configuration=configuration,
            **self.settings(entry, federation, measured_on),
            **facts,
        )
        dataset = label("dataset", used.dataset)
        shared = {
            "run_id": self.run_id,
            "suite": self.suite.spec.name,
            "suite_version": self.suite.spec.version,
            "federation": federation,
            "dataset": dataset,
            "dataset_sha256": self.suite.digests[dataset],
            "model": self.model_words(used),
            "defense": entry.label,
            "defense_version": entry.part.version,
            "control": entry.part.instance.control,
            "variant": variant_of(entry.part.instance),
            "seed": seed,
        }
        return Cell(cell_id=cell_id, facts=shared | facts)

    def training(self, entry: DefenseEntry, federation: str, seed: int) -> Cell:
        """Make the cell (unit of work) of one training."""
        return self.cell(entry, federation, seed, role="utility", attack="training")

    def attack(self, entry: DefenseEntry, federation: str, seed: int, attack: AttackEntry) -> AttackCell:
        """Make the cell (unit of work) of one attack on one training."""
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

    def _borrowed(self, federation: str) -> str | None:
        """The federation whose calibration this one uses; None where it has its own."""
        found: str | None = getattr(self.specs[federation], "calibrated_on", None)
        return found


class ClientKind(FederationKind):
    """Federations of clients (horizontal federated learning)."""

    table = "federations"
    defense = Defense
    attacks = (Attack,)

    def prepare(self, entry: DefenseEntry, federation: str, seed: int) -> Prepared:
        return prepare(self.suite, entry, federation, seed)

    def settings(self, entry: DefenseEntry, federation: str, measured_on: Any) -> dict[str, Any]:
        spec: FederationSpec = self.specs[federation]
        basis = self.specs[spec.calibrated_on] if spec.calibrated_on else None
        used = measured_on or spec
        return {
            "federation": spec.model_dump(mode="json"),
            "basis": basis.model_dump(mode="json") if basis else None,
            "data": [
                self.suite.digests[label("dataset", one.dataset)] for one in (used, spec, basis) if one is not None
            ],
            # The number of processes is no part of it, because it changes no value.
            "executor": spec.executor or "sequential",
            "device": self.suite.spec.device,
            **outside_facts(used, spec, basis, entry.change, self.suite.spec.audit if measured_on else None),
        }

    def trial(self, entry: DefenseEntry, name: str, seed: int) -> TrialJob:
        """Plan one training with the attacks on it, including attacks that need shadow federations."""
        spec: FederationSpec = self.specs[name]
        return TrialJob(
            federation=spec,
            change=change_of(entry, spec),
            protection=self.of(entry, name, seed).protection,
            seed=seed,
            # With a borrowed calibration the federation is only attacked; utility is that of the one it borrows from.
            training=None if self._borrowed(name) else self.training(entry, name, seed),
            attacks=tuple(self.attack(entry, name, seed, one) for one in self.attacks_on(name)),
            device=self.suite.spec.device,
        )


def outside_facts(*tables: BaseModel | None) -> dict[str, Any]:
    """Return the versions of parts from outside the package that the tables name, as a fact that enters a cell's hash.
    Without such parts there is no fact, so that the identity of all other cells (units of work) does not change.
    """
    versions = outside_versions(tables)
    return {"outside": versions} if versions else {}


def part_facts(entry: DefenseEntry) -> list[Any]:
    """Return the facts that identify a defense: its class, code version and configuration, and its changes to the
    federation's plan.
    """
    change = entry.change.model_dump(mode="json")
    return [entry.part.path, entry.part.version, plain_data(entry.part.instance.fields()), change]


def change_of(entry: DefenseEntry, spec: FederationSpec) -> PlanChange:
    """Return how the defense changes the federation's plan; a defense that uses another federation's calibration
    changes nothing.
    """
    return entry.change if spec.calibrated_on is None else PlanChange()
