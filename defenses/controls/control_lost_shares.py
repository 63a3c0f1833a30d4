"""Control: Gaussian shares that forget the drop-outs.

The real bug: every client's share is the noise over the number of clients invited, not of those that are sure to stay.
Who drops out takes a share along, and the sum that is left has less noise than the accountant was told.
"""

from dataclasses import dataclass
from typing import ClassVar

from ...fl.plan import Plan
from ..defense import Prepared, broken
from ..secure.distributed_gaussian import DistributedGaussian, DistributedGaussianProtection


@dataclass(frozen=True, kw_only=True)
class LostSharesProtection(DistributedGaussianProtection):
    """Publishes the law of its correct twin; a share is enough only if nobody drops out."""

    def shares_needed(self, invited: int) -> int:
        return invited


@dataclass(frozen=True, kw_only=True)
class ControlLostShares(DistributedGaussian):
    """Signs the claim of distributed Gaussian noise and does not keep it: an audit must refute it.

    The same clients drop out in every round unless told otherwise: for those who stay no chance of being gone makes up
    for what is missing.
    """

    control: ClassVar[bool] = True
    drops: str = "first"

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), LostSharesProtection)
