"""Audit method: one way to audit a claim, with its plan, its runs, its measurement, its checks and its words."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ...audit.claim import Claim
from ...audit.evidence import MembershipScores, Setting
from ...audit.finding import Weakness
from ...audit.measurement import Measurement
from ..checks.check import CheckResult
from ..checks.replay_checks import check_claim
from ..config.canaries import why_not_covered
from ..config.suite import AuditSpec
from ..jobs.block_job import AuditRequest, BlockJob
from ..jobs.planned_audit import PlannedAudit
from ..jobs.trial_job import AttackCell, ShadowJob
from ..results.store import Store
from .audited_federation import audited_federation, inseparable


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an audit measured, and the scores with and without the canary that it was read from."""

    measurement: Measurement
    scores: MembershipScores


class AuditMethod(ABC):
    """One way to audit a claim. A file of this folder that defines ``METHOD``, an instance, adds one.

    Attributes:
        attack: the ``attack`` field of its rows; it is part of their cells' identity.
        precedence: among the methods that cover a claim, the one with the lowest number audits it.
    """

    attack: ClassVar[str]
    precedence: ClassVar[int]

    @property
    def name(self) -> str:
        """The name of its file, by which a worker process finds it."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def plan_text(self, audit: PlannedAudit) -> list[str]:
        """What the planned audit can show, for ``--dry-run``: size, bound, power; more lines are indented.

        Raises:
            ValueError: for a claim whose law it cannot use; the audit would fail.
        """

    @abstractmethod
    def measure(self, audit: PlannedAudit, store: Store) -> Reading:
        """The bound on epsilon from the audit's finished cells.

        Raises:
            ValueError: where one of these cells failed, with its reason.
        """

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        """Implementation checks of the claim."""
        return ()

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        """Why the audit may have been too weak to refute this claim; ``audit.finding.judge`` draws the conclusion."""
        return Weakness()


class BlockMethod(AuditMethod):
    """A method with runs of its own, one block of them for each seed.

    Attributes:
        chosen_by_suite: whether the suite's audit table chooses it; else the law that the defense publishes does.
        own_federation: whether it runs the small federation of the audit table; else the claim's own plan.
    """

    chosen_by_suite: ClassVar[bool] = True
    own_federation: ClassVar[bool] = True

    @abstractmethod
    def covers(self, request: AuditRequest) -> bool:
        """Whether this method is the one for the claim, unless one of lower precedence is.

        Raises:
            ValueError: for a published law that cannot be evaluated.
        """

    @abstractmethod
    def run(self, job: BlockJob, store: Store) -> dict[str, Any]:
        """Make the runs of one block and keep them; returns the fields of the block's row."""

    def out_of_scope(self, request: AuditRequest) -> str:
        """Why it cannot audit a claim that it covers; empty where it can."""
        return why_not_covered(request.claim) or inseparable(request)

    def budget(self, claim: Claim, audit: AuditSpec) -> AuditSpec:
        """The audit table with as many replicas as this claim gets."""
        return audit

    def shares(self, replicas: int, seeds: int) -> list[int]:
        """Runs per arm of each seed."""
        whole, rest = divmod(replicas, max(1, seeds))
        return [whole + (n < rest) for n in range(seeds)]

    def runs(self, replicas: int) -> int:
        """Runs of a block in all, for so many per arm."""
        return 2 * replicas

    def inert(self, audit: AuditSpec) -> int:
        """Weights that no data moves, for canaries to be planted along and for checks."""
        return 1

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        """Checks by replay, on the first block's federation; methods add those of their own runs."""
        # One thread gives the same bits whatever the number of processes.
        torch.set_num_threads(1)
        block = audit.blocks[0]
        task, plan = audited_federation(block)
        return check_claim(task, plan, block.protection, audit.claim, seed=block.seed)


class AttackMethod(AuditMethod):
    """A method that reads what attacks on shadow federations found, without runs of its own.

    It audits every claim that it covers, also one that is audited by runs of its own: the two are separate tests.
    """

    @abstractmethod
    def setting(self, job: ShadowJob) -> Setting:
        """What the attacks' scores of one shadow federation are evidence of."""

    @abstractmethod
    def covers(self, claim: Claim, job: ShadowJob) -> bool:
        """Whether these scores are evidence about the claim."""

    @abstractmethod
    def registered(self, jobs: Sequence[ShadowJob]) -> tuple[AttackCell, ...]:
        """The attacks that it reads, fixed before anything has run."""


def pooled_replicas(audit: PlannedAudit) -> int:
    """Runs per arm of all blocks together."""
    return sum(block.replicas for block in audit.blocks)
