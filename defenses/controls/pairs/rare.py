"""The real bugs of this family: one report in a hundred, one class, or an empty lot is treated differently."""

import torch
from torch import Tensor

from ....fl.message import Message
from ..case import At, ClientCase, ReportCase, SampleCase


class OneInHundred(ReportCase):
    """One report in a hundred takes a fallback path without noise."""

    def noise(self, updates: Message, at: At) -> Tensor:
        bare = at.uniform(*updates.present.shape, 1) < 0.01 * self.broken
        return super().noise(updates, at).masked_fill(bare, 0)


class LastCoordinateRarely(ReportCase):
    """In one report of ten the last coordinate has no noise."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        noise = super().noise(updates, at)
        noise[..., -1] *= at.uniform(*updates.present.shape) >= 0.1 * self.broken
        return noise


class WeakOnceInTwenty(SampleCase):
    """In one step of twenty the noise is a tenth, by a race between two configurations."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        weak = at.uniform(len(like), 1) < 0.05 * self.broken
        return super().noise(like, at) * torch.where(weak, 0.1, 1.0)


class ClassZeroNoise(SampleCase):
    """Lots that hold a sample of class 0 get half of the noise."""

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        layout, total = at.plan.layout, self.total(gradients, present, at)
        # The gradient of the output's bias is negative at the class of the sample.
        head = gradients[..., layout.slices[layout.names[-1]]]
        zero = ((head.argmin(-1) == 0) & (head.amin(-1) < 0) & present).any(1, keepdim=True)
        noise = self.noise(total, at) * torch.where(zero & torch.tensor(self.broken), 0.5, 1.0)
        return (total + noise) / at.plan.expected_lot(at.client)


class EmptyLotSilent(SampleCase):
    """An empty lot sends zeros without noise."""

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        step = super().step(gradients, present, at)
        return step * present.any(1, keepdim=True) if self.broken else step


class NewClientsLouder(ClientCase):
    """A client's first update counts three times, after the clip."""

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        if at.round == 0:
            self.memory.clear()
        values = sent.values.clone()
        for row, sender in enumerate((updates.senders or ()) if self.broken else ()):
            there = updates.present[:, row]
            seen = self.remembered(sender, torch.zeros_like(there))
            values[:, row] *= torch.where(seen, 1.0, 3.0).unsqueeze(-1)
            self.memory[sender] = seen | there
        return sent.with_values(values)
