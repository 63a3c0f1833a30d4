"""Control: DP-SGD that divides sum and noise by the lot's actual size.

The real bug: ``.mean()`` over a Poisson sample. The size tells who was drawn, through the scale of everybody's sum and
of the noise; large lots carry less noise than the accountant takes them to.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..defense import Prepared, broken
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection


@dataclass(frozen=True, kw_only=True)
class ActualLotProtection(DPSGDProtection):
    """Publishes the law of its correct twin, which divides by the expected lot."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        direction = super().local_step(gradients, present, client, context, state, rng)
        return direction * context.plan.expected_lot(client) / present.sum(1, keepdim=True).clamp_min(1)


@dataclass(frozen=True, kw_only=True)
class ControlActualLot(DPSGD):
    """Signs the claim of DP-SGD and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), ActualLotProtection)
