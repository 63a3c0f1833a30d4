"""Base classes of the jobs on all kinds of federations: a job is one training with all attacks on it, or the audit of
one privacy claim.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...audit.check import CheckResult
from ...audit.claim import Claim
from ...audit.finding import Finding
from ...defenses.defense import DefensePart
from ..config.tables.key_types import WithData
from ..results.cell import Cell, verdict_rows
from ..results.record import Record
from ..results.store import Store
from .finished_cells import AttackCell, Clock, Works, finish_cell, finish_job


@dataclass(frozen=True, kw_only=True)
class TrainingJob(ABC):
    """A job that trains once and runs all attacks on the result; each subclass is for one kind of federation.

    Args:
        training: the cell that measures utility; None where none is measured.
    """

    federation: WithData
    seed: int
    training: Cell | None = None
    attacks: tuple[AttackCell, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All units of work of this job; the first one is the training, if it measures the models' utility."""
        training = () if self.training is None else (self.training,)
        return (*training, *(attack.cell for attack in self.attacks))

    @property
    @abstractmethod
    def words(self) -> str:
        """A phrase for the text of a plan: who takes part, and how the models are trained."""

    @abstractmethod
    def trained(self, store: Store, clock: Clock) -> Any:
        """Train the federation, for all attacks on it; ``clock`` measures the training."""

    def utility(self, cell: Cell, trained: Any, store: Store) -> list[Record]:
        """Return the rows about the quality of the trained models; none by default."""
        return []

    @abstractmethod
    def attacked(self, item: AttackCell, trained: Any, store: Store) -> list[Record]:
        """Run one attack and return its result rows."""

    def run(self, store: Store, finished: frozenset[str]) -> list[str]:
        return finish_job(self.cells, store, finished, partial(self.trained, store), partial(self.works, store))

    def works(self, store: Store, trained: Any) -> Works:
        """Yield each cell with the function that computes its rows."""
        if self.training is not None:
            yield self.training, partial(self.utility, self.training, trained, store)
        yield from ((item.cell, partial(self.attacked, item, trained, store)) for item in self.attacks)


@dataclass(frozen=True, kw_only=True)
class OtherAuditJob(ABC):
    """A job that audits one privacy claim about a federation; each subclass is for one kind of federation.

    Args:
        defense: prepares the protection for the plan of the audit.
        alpha: its share of the suite's alpha.
    """

    federation: WithData
    defense: DefensePart
    claim: Claim
    seed: int
    alpha: float
    cell: Cell

    @abstractmethod
    def found(self) -> tuple[Finding, tuple[CheckResult, ...]]:
        """Return the finding about the claim, and the results of its implementation checks."""

    def run(self, store: Store, finished: frozenset[str]) -> list[str]:
        return finish_cell(self.cell, store, finished, lambda: verdict_rows(self.cell, *self.found()))

    @property
    @abstractmethod
    def replicas(self) -> int:
        """The number of runs per arm from which the verdict is computed."""

    @property
    @abstractmethod
    def tested(self) -> int:
        """The number of runs per arm that test a single bound."""

    @property
    @abstractmethod
    def runs(self) -> int:
        """The total number of runs, including those from which scores are learned."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this job stores."""
        return (self.cell,)
