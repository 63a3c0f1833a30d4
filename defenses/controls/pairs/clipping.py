"""The real bugs of this family: clipping does not bound what the accountant assumes."""

from typing import ClassVar

import torch
from torch import Tensor

from ....fl.laws.law import clip, clipped_sum, lot_sum
from ....fl.message import Message
from ..case import At, ClientCase, SampleCase, layers_of, lengths_of


class PerLayerClip(SampleCase):
    """Each layer is clipped to the whole bound."""

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        if not self.broken:
            return super().total(gradients, present, at)
        layers = layers_of(at.plan.layout)
        return torch.cat([clipped_sum(gradients[..., part], present, self.clip_norm) for part in layers], dim=-1)


class FirstRowFree(SampleCase):
    """The first sample of each lot, by which the clip is initialised, is not clipped."""

    curve = False

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        first = gradients[:, :1].nan_to_num() * self.broken
        more = lot_sum(first - clip(first, self.clip_norm), present[:, :1])
        return super().total(gradients, present, at) + more


class LargestEntry(ClientCase):
    """Single numbers are clamped to the clip norm, and the vector is not clipped."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        clamped = values.nan_to_num().clamp(-self.clip_norm, self.clip_norm)
        return clamped if self.broken else super().clipped(values, at)


class ShortPass(ClientCase):
    """Updates shorter than three clip norms pass unclipped, as a tolerance."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        short = lengths_of(values) < 3 * self.clip_norm
        return torch.where(short & torch.tensor(self.broken), values, super().clipped(values, at))


class PerStepBound(ClientCase):
    """The clip norm bounds one local step, and the update of several steps is as many times as long."""

    local_steps: ClassVar[int] = 2

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return clip(values, self.clip_norm * (at.plan.algorithm.local_steps if self.broken else 1))


class AverageThenClip(ClientCase):
    """The mean of the updates is clipped, with the noise that fits one client's share of it."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return values.nan_to_num() if self.broken else super().clipped(values, at)

    def total(self, received: Message, at: At) -> Tensor:
        total, divisor = super().total(received, at), self.divisor(at.plan)
        return clip(total / divisor, self.clip_norm) * divisor if self.broken else total


class WrongBracket(ClientCase):
    """Automatic clipping has a misplaced bracket: row / length + gamma row, instead of row / (length + gamma)."""

    published = False

    def clipped(self, values: Tensor, at: At) -> Tensor:
        rows = values.nan_to_num().clamp(-1e15, 1e15)
        lengths = lengths_of(rows)
        scaled = rows / lengths.clamp_min(1e-6) + 0.01 * rows if self.broken else rows / (lengths + 0.01)
        return self.clip_norm * scaled
