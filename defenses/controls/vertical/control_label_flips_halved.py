"""This broken randomised response flips labels half as often as its budget asks.

The real bug: a label is flipped with probability p and replaced by a uniform class, but the formula for p is that of a
mechanism whose other outcome is always another class, or a second coin is thrown before the flip.
"""

from dataclasses import dataclass

import torch

from ....fl.vertical.plan import VerticalPlan
from ...vertical.channel import response_channel
from ...vertical.defense import VerticalPrepared
from ...vertical.labels.label_randomised_response import LabelRandomisedResponse
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlLabelFlipsHalved(VerticalControl, LabelRandomisedResponse):
    """A deliberately broken defense (control) that states the claims of randomised response on labels, which an audit
    must refute: its epsilon is larger by ln 2 or more.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        classes = plan.network.classes
        right = response_channel(self.each_of(plan.epochs if self.redraw else 1), classes)
        return {"channel": (right + torch.eye(classes, dtype=right.dtype)) / 2}
