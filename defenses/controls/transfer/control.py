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


def correct_version(control: TransferDefense) -> TransferDefense:
    """Return the correct defense whose class a control inherits from, with the control's configuration.

    Raises:
        ValueError: for a control that inherits from no correct defense.
    """
    for base in type(control).__mro__[1:]:
        if issubclass(base, TransferDefense) and not base.control and ABC not in base.__bases__:
            return base(**control.fields())
    raise ValueError(f"{type(control).__name__} does not inherit from a correct defense, so the two cannot be compared")
