"""Plan the trainings, attacks and audits of a suite's vertical federations."""

from typing import Any, ClassVar

from ...audit.observer import PASSIVE_PARTY
from ...defenses.vertical.defense import VerticalPrepared
from ...fl.vertical.plan import VerticalPlan
from ..config.resolve import AttackEntry, DefenseEntry
from ..config.resolve_vertical import prepare_vertical, vertical_attacks, vertical_defenses
from ..config.tables.vertical import VerticalSpec
from ..jobs.other_jobs import OtherAuditJob, OtherTrialJob
from ..jobs.vertical_job import VerticalAuditJob, VerticalTrialJob
from .memory_estimate import HeldArrays, of_vertical
from .plan_other import OtherPlanner


class VerticalPlanner(OtherPlanner):
    """Plans the work on one suite's vertical federations."""

    table: ClassVar[str] = "vertical"
    audit_name: ClassVar[str] = "vertical_runs"
    trial_job: ClassVar[type[OtherTrialJob]] = VerticalTrialJob
    audit_job: ClassVar[type[OtherAuditJob]] = VerticalAuditJob

    def defenses(self, name: str) -> list[DefenseEntry]:
        return vertical_defenses(self.suite, name)

    def attacks(self, name: str) -> list[AttackEntry]:
        return vertical_attacks(self.suite, name)

    def prepare(self, entry: DefenseEntry, name: str, seed: int) -> tuple[VerticalPlan, VerticalPrepared]:
        return prepare_vertical(self.suite, entry, name, seed)

    def held(self, name: str, plan: VerticalPlan) -> list[HeldArrays]:
        spec: VerticalSpec = self.specs[name]
        # An audit by one run keeps what a passive party receives.
        audited = {PASSIVE_PARTY} if spec.audit is not None and spec.audit.design != "independent" else set()
        attacks = {attack.part.instance.observer for attack in self.attacks(name)}
        return of_vertical(spec, plan, audited | attacks)

    def model_words(self, spec: Any) -> str:
        if spec.summed and not spec.hidden:
            return "vertical logistic"
        sizes = "-".join(str(size) for size in spec.hidden) or "linear"
        top = "sum" if spec.summed else "-".join(str(size) for size in spec.top_hidden) or "linear"
        return f"split {sizes}/{top}"

    def rounds(self, plan: VerticalPlan) -> int:
        return plan.epochs
