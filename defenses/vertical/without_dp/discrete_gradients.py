"""Gradients are rounded to few values before they are sent, without DP (DiscreteSGD: Fu et al. 2022)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....fl.fields import Count
from ....fl.vertical.protection import VerticalContext, VerticalPlan, VerticalProtection
from ..defense import VerticalDefense, VerticalPrepared


@dataclass(frozen=True, kw_only=True)
class DiscreteGradientsProtection(VerticalProtection):
    """A protection that cuts the entries of a message to their mean plus and minus two standard deviations, and rounds
    them to the nearest end of ``bins`` equal bins of this range.
    """

    bins: int

    def gradients(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        flat = values.flatten(1)
        mean, reach = flat.mean(1, keepdim=True), 2 * flat.std(1, correction=0, keepdim=True)
        width = 2 * reach / self.bins
        low = mean - reach
        cut = torch.minimum(torch.maximum(flat, low), mean + reach)
        # Where all entries are equal there is nothing to round.
        sent = torch.where(width > 0, low + ((cut - low) / width).round() * width, flat)
        return sent.view_as(values)


@dataclass(frozen=True, kw_only=True)
class DiscreteGradients(VerticalDefense):
    """A defense that hides the fine differences of gradients. It states no claim, because what is sent is a
    deterministic function of the labels.

    The paper takes the range from the gradients of the first epoch, which it sends as they are; here each message has
    the range of its own entries, so that the first epoch is rounded too.

    Args:
        bins: number of bins, >= 1.
    """

    bins: Count = 12

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        return VerticalPrepared(protection=DiscreteGradientsProtection(bins=self.bins), claims=())
