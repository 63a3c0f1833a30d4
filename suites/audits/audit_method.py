"""Audit method: one way to audit a claim, from its plan and runs to its measurement, checks and printed words."""

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
    """The measurement of an audit, and the scores with and without the canary that it was computed from."""

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
        """Describe what the planned audit can show (size, bound, power), as ``fedassay plan`` prints it.

        The first line completes the line of the claim; further lines are indented below it.

        Raises:
            ValueError: for a claim with a law that the method cannot use; its audit would fail.
        """

    @abstractmethod
    def measure(self, audit: PlannedAudit, store: Store) -> Reading:
        """Bound epsilon from below by the audit's finished cells.

        Raises:
            ValueError: if one of these cells failed, with its reason.
        """

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        """Make the implementation checks of the claim; a method without runs of its own has none."""
        return ()

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        """Name reasons why the audit may have been too weak to refute this claim.

        ``audit.finding.judge`` alone draws the conclusion, so that no method can change a verdict.
        """
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
        """Whether this method can be chosen for the claim; of several, the one with the lowest precedence is.

        Raises:
            ValueError: for a published law that cannot be evaluated.
        """

    @abstractmethod
    def run(self, job: BlockJob, store: Store) -> dict[str, Any]:
        """Make the runs of one block and store them. Returns the fields of the block's row."""

    def out_of_scope(self, request: AuditRequest) -> str:
        """Why it cannot audit a claim that it covers; empty where it can."""
        return why_not_covered(request.claim) or inseparable(request)

    def budget(self, claim: Claim, audit: AuditSpec) -> AuditSpec:
        """The audit table with as many replicas as this claim gets."""
        return audit

    def shares(self, replicas: int, seeds: int) -> list[int]:
        """Runs per arm of each seed: they differ by one at most, and their sum is ``replicas``."""
        # The first seeds take the remainder: rounding down everywhere would lose runs that the suite planned with.
        whole, rest = divmod(replicas, max(1, seeds))
        return [whole + (n < rest) for n in range(seeds)]

    def runs(self, replicas: int) -> int:
        """Runs of a block in total, for a number of runs per arm."""
        return 2 * replicas

    def inert(self, audit: AuditSpec) -> int:
        """Number of weights that no data moves: canaries are planted along them, and checks use one."""
        return 1

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        """Checks by replay, on the first block's federation; methods add those of their own runs."""
        # One thread gives the same bits whatever the number of processes.
        torch.set_num_threads(1)
        # A check is about the code, which all blocks share: one block shows it.
        block = audit.blocks[0]
        task, plan = audited_federation(block)
        return check_claim(task, plan, block.protection, audit.claim, seed=block.seed)


class AttackMethod(AuditMethod):
    """A method that makes no runs: it reads what the suite's attacks on shadow federations found.

    It audits every claim that it covers, also a claim that a ``BlockMethod`` audits: the two are separate tests.
    """

    @abstractmethod
    def setting(self, job: ShadowJob) -> Setting:
        """State what the attacks' scores of one shadow federation are evidence of."""

    @abstractmethod
    def covers(self, claim: Claim, job: ShadowJob) -> bool:
        """Whether these scores are evidence about the claim."""

    @abstractmethod
    def registered(self, jobs: Sequence[ShadowJob]) -> tuple[AttackCell, ...]:
        """Name the attacks that it reads, before anything runs: attacks chosen by their results would exceed alpha."""


def pooled_replicas(audit: PlannedAudit) -> int:
    """Sum of the runs per arm of all blocks."""
    return sum(block.replicas for block in audit.blocks)
