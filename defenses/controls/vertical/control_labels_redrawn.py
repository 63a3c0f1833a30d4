"""This broken randomised response draws labels again in every epoch, at the budget of one draw.

The real bug: the randomiser sits in the data loader, which runs once per epoch.
"""

from dataclasses import dataclass

from ....fl.vertical.plan import VerticalPlan
from ...vertical.defense import VerticalPrepared
from ...vertical.labels.label_randomised_response import LabelRandomisedResponse
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlLabelsRedrawn(VerticalControl, LabelRandomisedResponse):
    """A deliberately broken defense (control): an audit over several epochs must refute its claims. In one epoch it is
    correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"redraws": True}
