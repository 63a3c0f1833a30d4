"""This broken DP-SGD divides the noised sum by the actual size of the sampled batch, not by the expected size.

The real bug: ``.mean()`` over a Poisson sample. The size shows who was drawn, through the scale of the sum and of the
noise, and large lots carry less noise than the accountant assumes.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.protection import Context, Protection, State
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class ActualLotProtection(DPSGDProtection):
    """A broken protection that divides by the actual batch size, which is private; the correct version divides by the
    expected size.
    """

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        direction = super().local_step(gradients, present, client, context, state, rng)
        # The parent has divided by the expected lot already: undo that, then divide by the samples that are present.
        return direction * context.plan.expected_lot(client) / present.sum(1, keepdim=True).clamp_min(1)


@dataclass(frozen=True, kw_only=True)
class ControlActualLot(Control, DPSGD):
    """A deliberately broken defense (control) that states the claim of DP-SGD but violates it, so an audit must refute
    it.
    """

    broken: ClassVar[type[Protection]] = ActualLotProtection
