"""Define the base class of controls: defenses with a planted bug that state the claim of the correct defense."""

import dataclasses
from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

from ...fl.plan import Plan
from ...fl.protection import Protection
from ..defense import Defense, DefensePart, Prepared

Part = TypeVar("Part", bound=DefensePart)


@dataclass(frozen=True, kw_only=True)
class Control(Defense, ABC):
    """A base class of defenses with a planted bug: ``class ControlX(Control, X)`` is the correct defense ``X``, except
    that it runs the protection class ``broken``.

    The claims, the spending and every field of the protection come from the correct version, so that only the bug
    differs. An audit or an implementation check must refute a control. ``broken`` is a subclass of the protection that
    ``X`` prepares; it inherits ``law``, so it publishes the law of the correct version.
    """

    control: ClassVar[bool] = True
    broken: ClassVar[type[Protection]]

    def prepare(self, plan: Plan) -> Prepared:
        correct = super().prepare(plan)
        # The fields of a protection are its calibrated numbers, so both versions run at the same noise.
        protection = self.broken(**vars(correct.protection), **self.bug(plan))
        return dataclasses.replace(correct, protection=protection)

    def bug(self, plan: Plan) -> dict[str, object]:
        """Return the values of the fields that the broken protection has in addition to those of the correct one."""
        return {}


def correct_version(control: Part) -> Part:
    """Return the correct defense whose class a control (a defense with a planted bug) inherits from, with the control's
    configuration.

    Raises:
        ValueError: for a control that inherits from no correct defense.
    """
    # By class and not by ``Control``: a control of another package may only set ``control``.
    for base in type(control).__mro__[1:]:
        if issubclass(base, DefensePart) and not base.control and ABC not in base.__bases__ and base is not DefensePart:
            known = {field.name for field in dataclasses.fields(base)}
            fields = {name: value for name, value in control.fields().items() if name in known}
            return cast(Part, base(**fields))
    raise ValueError(f"{type(control).__name__} does not inherit from a correct defense, so the two cannot be compared")
