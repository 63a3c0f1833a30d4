"""Plan the trainings, attacks and audits of a suite's transfers by answers."""

from typing import Any, ClassVar

from ...audit.parts import label
from ...defenses.transfer.defense import PreparedTransfer
from ...fl.transfer.plan import TransferPlan
from ..config.resolve import AttackEntry, DefenseEntry
from ..config.resolve_transfer import prepare_transfer, transfer_attacks, transfer_defenses
from ..config.tables.transfer import TransferSpec
from ..jobs.other_jobs import OtherAuditJob, OtherTrialJob
from ..jobs.transfer_job import TransferAuditJob, TransferTrialJob
from .memory_estimate import HeldArrays, of_transfer
from .plan_other import OtherPlanner


class TransferPlanner(OtherPlanner):
    """Plans the work on one suite's transfers."""

    table: ClassVar[str] = "transfer"
    audit_name: ClassVar[str] = "vote_mechanism"
    trial_job: ClassVar[type[OtherTrialJob]] = TransferTrialJob
    audit_job: ClassVar[type[OtherAuditJob]] = TransferAuditJob

    def defenses(self, name: str) -> list[DefenseEntry]:
        return transfer_defenses(self.suite, name)

    def attacks(self, name: str) -> list[AttackEntry]:
        return transfer_attacks(self.suite, name)

    def prepare(self, entry: DefenseEntry, name: str, seed: int) -> tuple[TransferPlan, PreparedTransfer]:
        return prepare_transfer(self.suite, entry, name, seed)

    def held(self, name: str, plan: TransferPlan) -> list[HeldArrays]:
        spec: TransferSpec = self.specs[name]
        return of_transfer(spec, plan, max((attack.shadows or 0 for attack in self.attacks(name)), default=0))

    def model_words(self, spec: Any) -> str:
        return label("model", spec.model)
