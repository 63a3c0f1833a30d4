"""Define what the jobs on vertical federations and on transfers have in common: one training, and one claim's audit."""

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
from .finished_cells import AttackCell, Works, finish_cell, finish_job


@dataclass(frozen=True, kw_only=True)
class OtherTrialJob(ABC):
    """A job that trains one federation once and runs all attacks on it; subclasses name its kind.

    Args:
        prepared: the calibrated protection with its claims.
        training: the cell that measures utility.
    """

    federation: WithData
    prepared: Any
    seed: int
    training: Cell
    attacks: tuple[AttackCell, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All units of work of this job; the first one is the training, which measures the models' utility."""
        return (self.training, *(attack.cell for attack in self.attacks))

    @abstractmethod
    def trained(self) -> Any:
        """Train the federation, for all attacks on it."""

    @abstractmethod
    def utility(self, trained: Any) -> list[Record]:
        """Return the rows about how good the trained models are."""

    @abstractmethod
    def attacked(self, item: AttackCell, trained: Any, store: Store) -> list[Record]:
        """Run one attack and return its rows."""

    def run(self, store: Store, finished: frozenset[str]) -> list[str]:
        return finish_job(self.cells, store, finished, self.trained, partial(self._works, store))

    def _works(self, store: Store, trained: Any) -> Works:
        yield self.training, partial(self.utility, trained)
        yield from ((item.cell, partial(self.attacked, item, trained, store)) for item in self.attacks)

    @property
    @abstractmethod
    def words(self) -> str:
        """Who takes part, and how they are trained, for the text of a plan."""


@dataclass(frozen=True, kw_only=True)
class OtherAuditJob(ABC):
    """A job that audits one claim about a federation; subclasses name its kind.

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
        """The number of runs per arm that the verdict is computed from."""

    @property
    @abstractmethod
    def tested(self) -> int:
        """The number of runs per arm that certify one bound."""

    @property
    @abstractmethod
    def runs(self) -> int:
        """The number of runs that it makes in all, with those from which the scores are learned."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this job stores."""
        return (self.cell,)
