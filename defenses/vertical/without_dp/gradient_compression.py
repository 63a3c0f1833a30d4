"""Only the largest entries of the gradients are sent, without DP (Fu et al. 2022, gradient compression)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....fl.vertical.protection import VerticalContext, VerticalPlan, VerticalProtection
from ...defense import Share
from ..defense import VerticalDefense, VerticalPrepared


@dataclass(frozen=True, kw_only=True)
class GradientCompressionProtection(VerticalProtection):
    """A protection that sends the largest ``kept`` share of the entries of a message, in absolute value, and 0 for the
    others; at least one entry.
    """

    kept: float

    def gradients(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        flat = values.flatten(1)
        count = max(1, math.floor(self.kept * flat.shape[1]))
        places = flat.abs().topk(count, dim=1).indices
        sent = torch.zeros_like(flat).scatter(1, places, flat.gather(1, places))
        return sent.view_as(values)


@dataclass(frozen=True, kw_only=True)
class GradientCompression(VerticalDefense):
    """A defense that sends few entries of a step's gradients, as they are. It states no claim, because the entries are
    a deterministic function of the labels.

    Args:
        kept: share of the entries of a message, all gradients of a batch to one party, in (0, 1).
    """

    kept: Share = 0.25

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        return VerticalPrepared(protection=GradientCompressionProtection(kept=self.kept), claims=())
