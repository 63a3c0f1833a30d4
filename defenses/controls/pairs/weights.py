"""The real bugs of this family: updates are weighted or rescaled by the data, with the noise for equal weights."""

import torch
from torch import Tensor

from ....fl.message import Message
from ..case import At, ClientCase, lengths_of


class ActualCohort(ClientCase):
    """Sum and noise are divided by the number of clients that came, which the scale of the noise shows."""

    def mean(self, received: Message, at: At) -> Tensor:
        came = received.present.sum(1, keepdim=True).clamp_min(1)
        return super().mean(received, at) * (self.divisor(at.plan) / came if self.broken else 1.0)


class MeanOfPresent(ClientCase):
    """The mean is over the clients that came, and its noise is for the expected cohort."""

    def total(self, received: Message, at: At) -> Tensor:
        came = received.present.sum(1, keepdim=True).clamp_min(1)
        return super().total(received, at) * (self.divisor(at.plan) / came if self.broken else 1.0)


class RescaledByLargest(ClientCase):
    """The sum is rescaled so that its longest update has the clip norm, and so one client rescales all others."""

    def total(self, received: Message, at: At) -> Tensor:
        total = super().total(received, at)
        if not self.broken or not received.values.shape[1]:
            return total
        longest = lengths_of(received.values).squeeze(-1).amax(1, keepdim=True)
        return total / longest.clamp_min(1e-3 * self.clip_norm) * self.clip_norm


class WeightAfterClip(ClientCase):
    """A client weights its update by its progress after the clip, by up to 4."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        lengths = lengths_of(values).nan_to_num(posinf=100.0)
        weights = (lengths / self.clip_norm).clamp(0.5, 4) if self.broken else torch.ones_like(lengths)
        return super().clipped(values, at) * weights
