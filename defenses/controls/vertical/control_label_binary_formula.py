"""This broken randomised response keeps a label with the probability of two classes, however many there are.

The real bug: e^eps / (1 + e^eps) from a text about yes-or-no questions, with the rest divided among the other classes.
"""

import math
from dataclasses import dataclass

import torch

from ....fl.vertical.plan import VerticalPlan
from ...vertical.defense import VerticalPrepared
from ...vertical.labels.label_randomised_response import LabelRandomisedResponse
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlLabelBinaryFormula(VerticalControl, LabelRandomisedResponse):
    """A deliberately broken defense (control): with k classes its epsilon is larger by ln(k - 1), and an audit must
    refute its claims. With two classes it is correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        classes, each = plan.network.classes, self.each_of(plan.epochs if self.redraw else 1)
        kept = 1 / (1 + math.exp(-each))
        channel = torch.full((classes, classes), (1 - kept) / (classes - 1), dtype=torch.float64)
        return {"channel": channel.fill_diagonal_(kept)}
