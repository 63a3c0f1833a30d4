"""Define the jobs on transfers by answers: teachers and students with the attacks on them, and one claim's audit."""

from dataclasses import dataclass

from ...audit.wording import counted
from ...defenses.transfer.defense import PreparedTransfer, TransferDefense
from ..config.tables.transfer import TransferSpec
from .other_jobs import OtherAuditJob, OtherTrialJob


@dataclass(frozen=True, kw_only=True)
class TransferTrialJob(OtherTrialJob):
    """A job that trains the teachers and students of one transfer once and runs all attacks on it."""

    federation: TransferSpec
    prepared: PreparedTransfer

    @property
    def words(self) -> str:
        spec = self.federation
        asked = "query" if spec.queries == 1 else "queries"
        return (
            f"{counted(spec.teachers, 'teacher')}, {spec.queries} {asked}, {counted(spec.students, 'student')} a seed"
        )


@dataclass(frozen=True, kw_only=True)
class TransferAuditJob(OtherAuditJob):
    """A job that audits one claim about a transfer, by runs of the mechanism of its votes or answers."""

    federation: TransferSpec
    defense: TransferDefense

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of queries of the audited mechanisms."""
        found = () if self.federation.audit is None else self.federation.audit.queries
        return tuple(sorted({min(size, self.federation.queries) for size in found}))

    @property
    def replicas(self) -> int:
        return self.tested * len(self.sizes)

    @property
    def tested(self) -> int:
        return 0 if self.federation.audit is None else self.federation.audit.trials

    @property
    def runs(self) -> int:
        return 3 * self.replicas  # Half as many on each of two inputs choose the pair and the score.
