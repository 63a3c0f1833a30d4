"""Control: DP-SGD that clips the lot's mean instead of each sample.

The real bug: ``clip_grad_norm_`` after ``loss.mean().backward()``. One long gradient turns the whole mean, by up to
twice the clip norm, where the noise is made for the clip norm over the lot.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.laws.law import clip
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..defense import Prepared, broken
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection


@dataclass(frozen=True, kw_only=True)
class ClipAfterMeanProtection(DPSGDProtection):
    """Publishes the law of its correct twin; direction = clip(mean of the lot) + the twin's noise."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lot = context.plan.expected_lot(client)
        mean = gradients.masked_fill(~present.unsqueeze(-1), 0).sum(1) / lot
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(mean.shape))
        return clip(mean, self.clip_norm) + noise / lot


@dataclass(frozen=True, kw_only=True)
class ControlClipAfterMean(DPSGD):
    """Signs the claim of DP-SGD and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), ClipAfterMeanProtection)
