"""No protection: the label with most votes is released for every query."""

from dataclasses import dataclass

from ...fl.transfer.plan import TransferPlan
from ...fl.transfer.protection import TransferProtection
from .defense import PreparedTransfer, TransferDefense


@dataclass(frozen=True, kw_only=True)
class PlainVotes(TransferDefense):
    """A baseline that releases every query's most voted label without noise and claims nothing."""

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        return PreparedTransfer(protection=TransferProtection(), claims=())
