"""Control: DP-SGD that forgets to clip.

The real bug: the clip is applied to a copy, or to the batch's mean, so that one sample moves the sum at will.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...fl.laws.law import lot_sum
from ...fl.plan import Plan
from ..defense import Prepared, broken
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection


@dataclass(frozen=True, kw_only=True)
class NoClipProtection(DPSGDProtection):
    """Publishes the law of its correct twin and sums gradients as they are."""

    def total(self, gradients: Tensor, present: Tensor) -> Tensor:
        return lot_sum(gradients, present)


@dataclass(frozen=True, kw_only=True)
class ControlNoClip(DPSGD):
    """Signs the claim of DP-SGD and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), NoClipProtection)
