"""Define what the jobs on vertical federations and on transfers have in common: one training, and one claim's audit."""

from dataclasses import dataclass
from typing import Any

from ...audit.claim import Claim
from ...defenses.defense import DefensePart
from ..config.tables.key_types import WithData
from ..results.cell import Cell
from .finished_cells import AttackCell


@dataclass(frozen=True, kw_only=True)
class OtherTrialJob:
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

    @property
    def words(self) -> str:
        """Who takes part, and how they are trained, for the text of a plan."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class OtherAuditJob:
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

    @property
    def replicas(self) -> int:
        """The number of runs per arm that the verdict is computed from."""
        raise NotImplementedError

    @property
    def tested(self) -> int:
        """The number of runs per arm that certify one bound."""
        raise NotImplementedError

    @property
    def runs(self) -> int:
        """The number of runs that it makes in all, with those from which the scores are learned."""
        raise NotImplementedError

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this job stores."""
        return (self.cell,)
