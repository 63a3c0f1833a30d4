"""Define the base class of controls of vertical federations: defenses with a planted bug that state a correct claim."""

import dataclasses
from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from ....fl.vertical.plan import VerticalPlan
from ....fl.vertical.protection import VerticalProtection
from ...vertical.defense import VerticalDefense, VerticalPrepared


@dataclass(frozen=True, kw_only=True)
class VerticalControl(VerticalDefense, ABC):
    """A base class of defenses with a planted bug: ``class ControlX(VerticalControl, X)`` states the claims, the laws
    and the spending of the correct defense ``X``, and runs another protection.

    That protection has the fields of the correct one, except for those that ``bug`` returns; its class is ``broken``,
    or that of the correct one.
    """

    control: ClassVar[bool] = True
    broken: ClassVar[type[VerticalProtection] | None] = None

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        correct = super().prepare(plan)
        # The fields of a protection are its calibrated numbers, so both versions run at the same noise.
        numbers = vars(correct.protection) | self.bug(correct, plan)
        protection = (self.broken or type(correct.protection))(**numbers)
        return dataclasses.replace(correct, protection=protection)

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        """Return the fields of the broken protection that differ from the correct one's or are missing there."""
        return {}
