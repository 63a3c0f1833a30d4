"""Define a planned audit: a claim, the method that audits it, and the runs from which its verdict is computed."""

from dataclasses import dataclass

from ...audit.claim import Claim
from ...audit.evidence import Setting
from ...audit.power import Look
from .block_job import AuditRequest, BlockJob
from .cell import Cell
from .trial_job import AttackCell


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
