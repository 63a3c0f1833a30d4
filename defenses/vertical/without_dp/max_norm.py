"""Gradients that are sent get noise along themselves, up to the batch's largest norm, without DP (Li et al. 2022)."""

import numpy as np
import torch
from torch import Tensor

from ....fl.laws import row_norms
from ....fl.streams import normal
from ....fl.vertical.protection import VerticalContext, VerticalPlan, VerticalProtection
from ..defense import VerticalDefense, VerticalPrepared


class MaxNormProtection(VerticalProtection):
    """A protection that multiplies each person's gradient by 1 + N(0, s^2), s^2 = (largest norm / own norm)^2 - 1, so
    that all gradients of a batch have the same expected squared norm; a gradient of 0 stays 0.
    """

    def gradients(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        norms = row_norms(values)
        largest = norms.amax(dim=1, keepdim=True)
        deviation = ((largest / norms).square() - 1).clamp_min(0).sqrt()
        factor = 1 + deviation * normal(rng, tuple(norms.shape))
        return torch.where(norms > 0, values * factor, values)


class MaxNorm(VerticalDefense):
    """A defense against attacks on labels by the norm of gradients. It states no claim: the direction of a gradient up
    to its sign is sent as it is, and the gradient with the largest norm is sent unchanged.
    """

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        return VerticalPrepared(protection=MaxNormProtection(), claims=())
