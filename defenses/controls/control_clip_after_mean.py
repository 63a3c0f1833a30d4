"""This broken DP-SGD clips the mean gradient of the batch instead of each sample's gradient.

The real bug: ``clip_grad_norm_`` after ``loss.mean().backward()``. One long gradient turns the whole mean, by up to
twice the clip norm, while the noise is scaled to the clip norm over the lot.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.laws.law import clip
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class ClipAfterMeanProtection(DPSGDProtection):
    """A broken protection that clips the mean gradient of the batch, not each gradient, and adds the noise of the
    correct version.
    """

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lot = context.plan.expected_lot(client)
        mean = gradients.masked_fill(~present.unsqueeze(-1), 0).sum(1) / lot
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(mean.shape))
        # The mean has sensitivity up to 2 clip norms; the noise is for one clip norm over the lot.
        return clip(mean, self.clip_norm) + noise / lot


@dataclass(frozen=True, kw_only=True)
class ControlClipAfterMean(Control, DPSGD):
    """A deliberately broken defense (control) that states the claim of DP-SGD but violates it, so an audit must refute
    it.
    """

    broken: ClassVar[type[Protection]] = ClipAfterMeanProtection
