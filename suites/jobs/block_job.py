"""Define a job that runs one seed's share of an audit's trials, with and without the canary."""

from dataclasses import dataclass

from ...audit.claim import Claim
from ...defenses.defense import Defense
from ...fl.protection import Protection
from ..config.tables.suite import AuditSpec, FederationSpec, PlanChange
from .cell import Cell

_BATCHES_OF_STAGE = 2**20
"""More than the most runs of an audit, so more than its batches."""


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """A claim to audit on one seed, with everything that an audit method needs to decide whether the method applies.

    Args:
        audit: the suite's audit table, with the defense's own federation and number of replicas.
        protection: prepared for the plan of this federation and seed.
        defense: prepares a protection for another plan, such as that of a smaller federation; None where the
            protection is used for every plan.
    """

    federation: FederationSpec
    change: PlanChange
    audit: AuditSpec
    protection: Protection
    claim: Claim
    seed: int
    defense: Defense | None = None


@dataclass(frozen=True, kw_only=True)
class BlockJob(AuditRequest):
    """A job that runs one seed's share of the trials, with and without the canary, for the audit of a claim.

    Args:
        method: file name of the audit method that makes them.
        replicas: runs per arm.
        runs: federations or trials that it makes in all.
        inert: number of weights added to the model that no data moves, one for each canary planted along one.
        place: the client whose place a canary that is a client takes; None: it is one more client.
        stage: number of the look at the audit before which these runs are made; 0 where there is only one.
        device: where its federations are trained.
    """

    # The method's name, not the object: a job is sent to a worker process, which finds the method by this name.
    method: str
    replicas: int
    runs: int
    inert: int
    cell: Cell
    place: int | None = None
    device: str = "cpu"
    stage: int = 0

    @property
    def first_batch(self) -> int:
        """Number of its first batch of runs; batches of different stages share no number, and so no draw."""
        return self.stage * _BATCHES_OF_STAGE

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this job stores."""
        return (self.cell,)
