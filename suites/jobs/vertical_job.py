"""Define the jobs on vertical federations: one training with the attacks on it, and the audit of one claim."""

from dataclasses import dataclass

from ...audit.wording import counted
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ..config.tables.vertical import VerticalSpec
from .other_jobs import OtherAuditJob, OtherTrialJob


@dataclass(frozen=True, kw_only=True)
class VerticalTrialJob(OtherTrialJob):
    """A job that trains one vertical federation once and runs all attacks on it."""

    federation: VerticalSpec
    prepared: VerticalPrepared

    @property
    def words(self) -> str:
        spec = self.federation
        holders = spec.columns if isinstance(spec.columns, int) else len(spec.columns)
        parties = f"columns at {holders} of {holders + (not spec.active)} parties"
        return f"{parties}, {counted(spec.epochs, 'epoch')}"


@dataclass(frozen=True, kw_only=True)
class VerticalAuditJob(OtherAuditJob):
    """A job that audits one claim about a vertical federation, by independent runs of a small one or one run of it."""

    federation: VerticalSpec
    defense: VerticalDefense

    @property
    def one_run(self) -> bool:
        """Whether the verdict is computed from one run of the whole federation, and not from two arms of runs."""
        return self.federation.audit is not None and self.federation.audit.design != "independent"

    @property
    def replicas(self) -> int:
        return 0 if self.federation.audit is None or self.one_run else self.federation.audit.replicas

    @property
    def tested(self) -> int:
        return self.replicas // 2  # The other half chooses the threshold.

    @property
    def runs(self) -> int:
        if self.federation.audit is None:
            return 0
        return 1 if self.one_run else 2 * (self.replicas + self.federation.audit.pilot)
