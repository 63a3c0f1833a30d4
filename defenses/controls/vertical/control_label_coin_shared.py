"""This broken randomised response throws one coin per training, and randomises the labels of all people by it.

The real bug: a random number of the shape of a channel's row is drawn outside the loop over people. Each label on its
own is randomised as stated, but the labels of two people of one class show together what the coin was.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot as one_hot_of

from ....fl.streams import uniform
from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ...vertical.channel import ChannelProtection
from ...vertical.labels.label_randomised_response import LabelRandomisedResponse
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedCoinProtection(ChannelProtection):
    """A broken protection whose people share one random number."""

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        labels, last = one_hot.argmax(-1), len(self.channel) - 1
        coin = uniform(rng, (len(labels), 1, 1), dtype=torch.float64)
        drawn = (coin >= self.channel.cumsum(1)[labels]).sum(-1).clamp_max(last)
        return one_hot_of(drawn, last + 1).to(one_hot.dtype)


@dataclass(frozen=True, kw_only=True)
class ControlLabelCoinShared(VerticalControl, LabelRandomisedResponse):
    """A deliberately broken defense (control) that states the claims of randomised response on labels, which an audit
    of all messages must refute. For a single person it is correct.
    """

    broken: ClassVar[type[VerticalProtection] | None] = SharedCoinProtection
