"""Release a label, or another number out of 0..k-1, by a table of probabilities."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot as one_hot_of

from ...fl.streams import uniform
from ...fl.vertical.protection import VerticalContext, VerticalProtection
from ..randomisers.categories.grr import GRR

# Below this, what a sum of probabilities lacks to 1 is rounding, which must not draw a class of probability 0.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelProtection(VerticalProtection):
    """A protection that trains on labels drawn by a channel.

    Args:
        channel: (classes, classes), the probability that a label (row) is drawn as another (column).
        redraws: whether labels are drawn again in every epoch.
    """

    channel: Tensor
    redraws: bool = False

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        drawn = through(self.channel, one_hot.argmax(-1), rng)
        return one_hot_of(drawn, len(self.channel)).to(one_hot.dtype)


def through(channel: Tensor, values: Tensor, rng: np.random.Generator) -> Tensor:
    """Draw a number in 0..k-1 for each of ``values``, integers of any shape, by the table ``channel (k, k)``.

    Each value takes one uniform number of the generator, so that another value changes no other draw.
    """
    bounds = channel.cumsum(1)
    bounds = bounds.masked_fill(bounds > 1 - _ROUNDING, 1.0)
    point = uniform(rng, (*values.shape, 1), dtype=torch.float64)
    return (point >= bounds[values]).sum(-1)


def response_channel(epsilon: float, classes: int) -> Tensor:
    """Return the table ``(classes, classes)`` of k-ary randomised response (Kairouz et al. 2016, equation 3)."""
    randomiser = GRR(epsilon=epsilon, domain=classes)
    channel = torch.full((classes, classes), randomiser.lie, dtype=torch.float64)
    return channel.fill_diagonal_(randomiser.truth)
