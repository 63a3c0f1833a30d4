"""Define the jobs on vertical federations: one training with the attacks on it, and the audit of one claim."""

from dataclasses import dataclass

from ...audit.claim import Claim
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ..config.vertical import VerticalSpec
from .cell import Cell
from .trial_job import AttackCell


@dataclass(frozen=True, kw_only=True)
class VerticalTrialJob:
    """A job that trains one vertical federation once and runs all attacks on it.

    Args:
        training: the cell that measures utility.
    """

    federation: VerticalSpec
    prepared: VerticalPrepared
    seed: int
    training: Cell
    attacks: tuple[AttackCell, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All units of work of this job; the first one is the training, which measures the models' utility."""
        return (self.training, *(attack.cell for attack in self.attacks))


@dataclass(frozen=True, kw_only=True)
class VerticalAuditJob:
    """A job that audits one claim about a vertical federation, by independent runs of a small one.

    Args:
        defense: prepares the protection for the plan of the small federation.
        alpha: its share of the suite's alpha.
    """

    federation: VerticalSpec
    defense: VerticalDefense
    claim: Claim
    seed: int
    alpha: float
    cell: Cell

    @property
    def one_run(self) -> bool:
        """Whether the verdict is computed from one run of the whole federation, and not from two arms of runs."""
        return self.federation.audit is not None and self.federation.audit.design != "independent"

    @property
    def replicas(self) -> int:
        """The number of runs per arm that the verdict is computed from; 0 for a single run, which has no arms."""
        return 0 if self.federation.audit is None or self.one_run else self.federation.audit.replicas

    @property
    def runs(self) -> int:
        """The number of runs that it makes in all, with those from which the scores are learned."""
        if self.federation.audit is None:
            return 0
        return 1 if self.one_run else 2 * (self.replicas + self.federation.audit.pilot)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this job stores."""
        return (self.cell,)
