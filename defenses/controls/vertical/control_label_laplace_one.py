"""This broken Laplace noise on one-hot labels takes their L1 distance for 1.

The real bug: a label is one number out of k, so its sensitivity is set to 1; but two numbers of its one-hot encoding
change.
"""

from dataclasses import dataclass

from ....fl.vertical.plan import VerticalPlan
from ...vertical.defense import VerticalPrepared
from ...vertical.labels.label_laplace import LabelLaplace
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlLabelLaplaceOne(VerticalControl, LabelLaplace):
    """A deliberately broken defense (control) that states the claims of Laplace noise on labels, which an audit must
    refute: its epsilon is twice as large.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"scale": 1 / self.each_of(plan.epochs if self.redraw else 1)}
