"""Give each unit of work (cell) of a run a hash that identifies it, and the fields that its result rows share."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ...audit.parts import label
from ...defenses.defense import variant_of
from ..config.identity import identity, plain_data
from ..config.outside_parts import outside_versions
from ..config.resolve import DefenseEntry, ResolvedSuite
from ..config.tables.suite import FederationSpec
from ..jobs.cell import Cell


@dataclass(frozen=True, kw_only=True)
class CellMaker:
    """A maker of a run's cells, which are the smallest units of work that are stored and resumed."""

    suite: ResolvedSuite
    run_id: str

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
        """Make one cell (unit of work); its id is a hash of the arguments and of all settings of the suite that they
        refer to.

        Args:
            configuration: all other data that determine its values.
            measured_on: the data and model that were used, where they are not the federation's own.
            facts: the other fields that all its rows share.
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
        shared = {
            "run_id": self.run_id,
            "suite": self.suite.spec.name,
            "suite_version": self.suite.spec.version,
            "federation": federation,
            "dataset": label("dataset", used.dataset),
            "dataset_sha256": self.suite.digests[label("dataset", used.dataset)],
            "model": label("model", used.model),
            "defense": entry.label,
            "defense_version": entry.part.version,
            "control": entry.defense.control,
            "variant": variant_of(entry.defense),
            "seed": seed,
        }
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
