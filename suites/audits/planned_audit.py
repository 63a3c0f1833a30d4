"""Define a planned audit: a claim, the method that audits it, and the runs from which its verdict is computed."""

from dataclasses import dataclass

from ...audit.claim import Claim
from ...audit.evidence import Setting
from ...audit.power import Look
from ...defenses.defense import Defense
from ...fl.protection import Protection
from ..attacking.finished_cells import AttackCell
from ..config.tables.suite import AuditSpec, FederationSpec, PlanChange
from ..results.cell import Cell

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


@dataclass(frozen=True, kw_only=True)
class AttackedFederation:
    """A shadow federation that includes each sample by an independent fair coin, and the attacks that guess which ones
    it includes.

    Args:
        setting: what the attacks' scores are evidence of.
        attacks: all registered attacks, including those that turn out not to apply.
        candidates: number of samples.
    """

    setting: Setting
    attacks: tuple[AttackCell, ...]
    candidates: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class PlannedAudit:
    """A plan to audit one claim: the audit method, its share of the error rate alpha, and the runs of all seeds.

    Args:
        method: file name of the audit method.
        alpha: its share of the suite's alpha.
        blocks: runs made for it; empty for an audit by attacks.
        attacked: the attacked federation that it reads; None for an audit with runs of its own.
        out_of_scope: why no method audits this claim; it then has no runs. Empty where one does.
        request: of a claim out of scope, so that its published law can still be held against it.
        looks: planned looks at the runs, after each of which the audit may stop; empty for one look at all of them.
    """

    cell: Cell
    method: str
    claim: Claim
    alpha: float
    # Either blocks or an attacked federation, never both: two sources of evidence are two tests, with two cells.
    blocks: tuple[BlockJob, ...] = ()
    attacked: AttackedFederation | None = None
    out_of_scope: str = ""
    request: AuditRequest | None = None
    looks: tuple[Look, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this audit stores."""
        return (self.cell,)
