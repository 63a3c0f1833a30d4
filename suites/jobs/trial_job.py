"""Trial job: one federation that is trained once for all attacks on it, or a bank of shadow federations."""

from dataclasses import dataclass

from ...audit.claim import Claim
from ...fl.protection import Protection
from ..config.resolve import AttackEntry
from ..config.suite import FederationSpec, PlanChange
from .cell import Cell


@dataclass(frozen=True, kw_only=True)
class AttackCell:
    """An attack on a trial, with the cell that its rows go to."""

    cell: Cell
    entry: AttackEntry


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """One federation, trained once, and the cells that observe it.

    Args:
        training: the cell that measures utility; None for a federation that borrows its calibration.
        device: where its attacks search for images.
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
        """All its cells; training comes first, where utility is measured."""
        training = () if self.training is None else (self.training,)
        return (*training, *(attack.cell for attack in self.attacks))


@dataclass(frozen=True, kw_only=True)
class ShadowJob:
    """Shadow federations, each trained on a random half of the samples, and the attacks on each of them in turn.

    Args:
        claims: the claims that the defense states about this plan.
        count: number of federations.
    """

    # Attacks share one job because training is the cost: a bank of federations is trained once for all of them.

    federation: FederationSpec
    change: PlanChange
    protection: Protection
    claims: tuple[Claim, ...]
    seed: int
    count: int
    attacks: tuple[AttackCell, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """One cell per attack."""
        return tuple(attack.cell for attack in self.attacks)
