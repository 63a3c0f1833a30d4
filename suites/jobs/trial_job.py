"""Define the jobs that train one federation for all attacks on it, or a set of shadow federations."""

from dataclasses import dataclass

from ...audit.claim import Claim
from ...fl.protection import Protection
from ..config.resolve import AttackEntry
from ..config.tables.suite import FederationSpec, PlanChange
from .cell import Cell


@dataclass(frozen=True, kw_only=True)
class AttackCell:
    """An attack on a trained federation, with the unit of work under which its result rows are stored."""

    cell: Cell
    entry: AttackEntry


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """A job that trains one federation once and runs all attacks on it.

    Args:
        training: the cell that measures utility; None for a federation that borrows its calibration.
        device: where it is trained, and where its attacks search for images.
    """

    federation: FederationSpec
    change: PlanChange
    protection: Protection
    seed: int
    training: Cell | None
    attacks: tuple[AttackCell, ...]
    device: str = "cpu"

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All units of work of this job; the first one is the training, which measures the model's utility."""
        training = () if self.training is None else (self.training,)
        return (*training, *(attack.cell for attack in self.attacks))


@dataclass(frozen=True, kw_only=True)
class ShadowJob:
    """A job that trains shadow federations on random halves of the samples and attacks each of them in turn.

    Args:
        claims: the claims that the defense states about this plan.
        count: number of federations.
        device: where they are trained.
    """

    # Attacks share one job because training is the cost: a bank of federations is trained once for all of them.

    federation: FederationSpec
    change: PlanChange
    protection: Protection
    claims: tuple[Claim, ...]
    seed: int
    count: int
    attacks: tuple[AttackCell, ...]
    device: str = "cpu"

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All units of work of this job, one per attack."""
        return tuple(attack.cell for attack in self.attacks)
