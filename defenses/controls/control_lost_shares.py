"""This broken distributed Gaussian noise loses the noise shares of clients that drop out.

The real bug: every client's share is the noise over the number of invited clients, not over the number that is sure to
stay. A client that drops out takes its share along, and the remaining sum has less noise than the accountant assumes.
"""

from dataclasses import dataclass
from typing import ClassVar

from ...fl.protection import Protection, Sums
from ..secure.distributed_gaussian import DistributedGaussian, DistributedGaussianProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class LostSharesProtection(DistributedGaussianProtection):
    """A broken protection that splits the noise over all invited clients, so the sum has enough noise only if no client
    drops out.
    """

    # Blocks call ``shares_needed`` as one matrix does.
    sums: ClassVar[Sums] = "sum"

    def shares_needed(self, invited: int) -> int:
        return invited


@dataclass(frozen=True, kw_only=True)
class ControlLostShares(Control, DistributedGaussian):
    """A deliberately broken defense (control) that states the claim of distributed Gaussian noise but violates it, so
    an audit must refute it.

    By default the same clients drop out in every round. With random drop-outs the canary client might be absent itself,
    and that chance would hide the missing noise.
    """

    broken: ClassVar[type[Protection]] = LostSharesProtection
    drops: str = "first"
