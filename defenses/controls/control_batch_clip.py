"""This broken DP-SGD scales the whole batch by one factor instead of clipping each sample's gradient.

The real bug: one clip per batch, by the mean of the samples' norms. A gradient that is much longer than all others sets
the factor and enters with up to n clip norms, where n is the size of the lot.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...fl.protection import Context, Protection, State
from ..sample_level.dp_sgd import DPSGD
from .control import Control
from .control_no_clip import NoClipProtection


@dataclass(frozen=True, kw_only=True)
class BatchClipProtection(NoClipProtection):
    """A broken protection that scales all gradients of a batch by one factor and does not clip single gradients."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lengths = torch.linalg.vector_norm(gradients, dim=-1).masked_fill(~present, 0)
        # Only samples that were drawn count: a factor set by the others would be a second bug.
        mean = lengths.sum(1) / present.sum(1).clamp_min(1)
        factor = self.clip_norm / mean.clamp_min(self.clip_norm)
        return super().local_step(gradients * factor[:, None, None], present, client, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlBatchClip(Control, DPSGD):
    """A deliberately broken defense (control) that states the claim of DP-SGD but violates it, so an audit must refute
    it.
    """

    broken: ClassVar[type[Protection]] = BatchClipProtection
