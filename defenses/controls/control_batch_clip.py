"""Control: DP-SGD that scales the whole lot by one factor.

The real bug: a clip per batch, by the mean of the samples' norms. One gradient that is much longer than all others sets
the factor: it enters with up to n clip norms, n the lot's size.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..defense import Prepared, broken
from ..sample_level.dp_sgd import DPSGD
from .control_no_clip import NoClipProtection


@dataclass(frozen=True, kw_only=True)
class BatchClipProtection(NoClipProtection):
    """Publishes the law of its correct twin; after one common factor no sample is clipped by itself."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lengths = torch.linalg.vector_norm(gradients, dim=-1).masked_fill(~present, 0)
        mean = lengths.sum(1) / present.sum(1).clamp_min(1)
        factor = self.clip_norm / mean.clamp_min(self.clip_norm)
        return super().local_step(gradients * factor[:, None, None], present, client, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlBatchClip(DPSGD):
    """Signs the claim of DP-SGD and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), BatchClipProtection)
