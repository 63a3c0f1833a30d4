"""Define the base class of controls of a transfer: defenses with a planted bug that state the correct one's claims."""

import dataclasses
from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from ....fl.transfer.plan import TransferPlan
from ....fl.transfer.protection import TransferProtection
from ...transfer.defense import PreparedTransfer, TransferDefense


@dataclass(frozen=True, kw_only=True)
class TransferControl(TransferDefense, ABC):
    """A base class of defenses with a planted bug: ``class ControlX(TransferControl, X)`` is the correct defense ``X``,
    except that it runs the protection class ``broken``, at the same calibrated numbers.

    ``broken`` is a subclass of the protection that ``X`` prepares; it inherits its laws, so it publishes those of the
    correct version.
    """

    control: ClassVar[bool] = True
    broken: ClassVar[type[TransferProtection]]

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        correct = super().prepare(plan)
        return dataclasses.replace(correct, protection=self.broken(**vars(correct.protection)))
