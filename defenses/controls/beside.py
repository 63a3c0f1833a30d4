"""Faults outside the update: data before noise are sent, stored or broadcast with the update; and correct masks and
indices.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...audit.observer import AGGREGATE
from ...fl.laws import clip
from ...fl.message import Message
from ...fl.protection import Context, State
from ...fl.streams import normal
from .case import At, ClientCase, Fault, ReportCase, SampleCase, lengths_of


class _ClippedFlag(ReportCase):
    def flagged(self, updates: Message, sent: Message) -> Tensor:
        """Return the vectors about whose norm one bit is sent."""
        return sent.values

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        over = lengths_of(self.flagged(updates, sent)).squeeze(-1) > self.clip_norm
        return replace(sent, side={"was_clipped": over & sent.present})


class ClippedFlagSide(Fault, _ClippedFlag):
    """One exact bit per report states whether the update was clipped."""

    curve = False

    def flagged(self, updates: Message, sent: Message) -> Tensor:
        return updates.values


class _SignsSide(ReportCase):
    published = False

    def signed(self, updates: Message, sent: Message) -> Tensor:
        """Return the numbers whose signs are sent."""
        return sent.values

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        return replace(sent, side={"signs": (self.signed(updates, sent) > 0) & sent.present.unsqueeze(-1)})


class RawSignsSide(Fault, _SignsSide):
    """The signs of the raw update are sent with the noised numbers, to help a compressor."""

    def signed(self, updates: Message, sent: Message) -> Tensor:
        return updates.values


class _TopIndices(ReportCase):
    def ranked(self, updates: Message, sent: Message) -> Tensor:
        """Return the vectors of which the positions of the largest numbers are sent."""
        return sent.values

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        rows = self.ranked(updates, sent)
        return replace(sent, side={"top": rows.abs().topk(min(8, rows.shape[-1]), dim=-1).indices})


class TopIndicesSide(Fault, _TopIndices):
    """The positions of the eight largest raw coordinates are sent with the report."""

    def ranked(self, updates: Message, sent: Message) -> Tensor:
        return updates.values


class _SizeOfPacket(ReportCase):
    def size(self, updates: Message, at: At) -> Tensor:
        """Return how many numbers each packet holds."""
        return torch.full(updates.present.shape, updates.values.shape[-1])

    def sent(self, updates: Message, at: At) -> Message:
        size = 4 * self.size(updates, at)
        return replace(super().sent(updates, at), side={"bytes": size.masked_fill(~updates.present, 0)})


class CompressedSize(Fault, _SizeOfPacket):
    """The size of the packet that is reported is that of the sparse raw update, not of the noised one."""

    curve = False

    def size(self, updates: Message, at: At) -> Tensor:
        return (self.clipped(updates.values, at).abs() > 1e-3 * self.clip_norm).sum(-1)


class _Quantised(ReportCase):
    published = False

    def lowest(self, updates: Message) -> Tensor | int:
        """Return the lowest bit of each quantised number."""
        return 0

    def sent(self, updates: Message, at: At) -> Message:
        sent, step = super().sent(updates, at), self.noise_std / 256
        grid = (sent.values / (2 * step)).round() * 2
        return sent.with_values((grid + self.lowest(updates)) * step)


class LowBits(Fault, _Quantised):
    """The lowest bit of every quantised, noised number is the sign of the raw number, by a slip of packing."""

    def lowest(self, updates: Message) -> Tensor | int:
        return updates.values > 0


class _Metric(ReportCase):
    def metric(self, updates: Message) -> Tensor:
        """Return one number per report."""
        return torch.zeros(updates.present.shape)

    def sent(self, updates: Message, at: At) -> Message:
        loss = self.metric(updates).masked_fill(~updates.present, 0)
        return replace(super().sent(updates, at), side={"loss": loss.half()})


class LossWord(Fault, _Metric):
    """A metric of the raw update, its product with a public direction, is uploaded in half precision."""

    curve = False

    def metric(self, updates: Message) -> Tensor:
        public = torch.from_numpy(np.random.default_rng(7).standard_normal(updates.values.shape[-1], dtype=np.float32))
        return (updates.values * public).mean(-1).nan_to_num()


class _ExpectedLot(SampleCase):
    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        return torch.full((len(present), 1), float(context.plan.expected_lot(client)))


class LotSizeQuery(Fault, _ExpectedLot):
    """The client's log line states the exact size of each lot."""

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        return present.sum(1, keepdim=True).float()


class _NormQuery(SampleCase):
    published = False

    @property
    def std(self) -> float:
        # Sum and mean norm together have a sensitivity of sqrt(2) clip norms.
        return 2**0.5 * super().std

    @property
    def query_std(self) -> float:
        """The standard deviation of the noise of the sum of lengths."""
        return self.std

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lengths = lengths_of(gradients).squeeze(-1).nan_to_num(posinf=self.clip_norm).clamp(max=self.clip_norm)
        total = lengths.masked_fill(~present, 0).sum(1, keepdim=True)
        return (total + self.query_std * normal(rng, tuple(total.shape))) / context.plan.expected_lot(client)


class GradNormQuery(Fault, _NormQuery):
    """The mean gradient norm of each lot is reported as a training metric without noise."""

    query_std = 0.0


class PublicRandomMask(ReportCase):
    """A public mask, new in every round, chooses the half of the coordinates that is sent; the others are zero."""

    published = False

    def mask(self, dim: int, at: At) -> Tensor:
        """Return which coordinates are sent."""
        return torch.from_numpy(np.random.default_rng([7, at.round, dim]).random(dim) < 0.5)

    def sent(self, updates: Message, at: At) -> Message:
        unsent = ~self.mask(updates.values.shape[-1], at)
        sent = super().sent(updates.with_values(updates.values.masked_fill(unsent, 0)), at)
        return sent.with_values(sent.values.masked_fill(unsent, 0))


class FirstHalfSent(PublicRandomMask):
    """Only the first half of the coordinates is ever sent."""

    def mask(self, dim: int, at: At) -> Tensor:
        return torch.arange(dim) < dim // 2


class RandomIndicesInSide(ReportCase):
    """Each client draws an eighth of the coordinates, states them in a side array, and sends these with noise."""

    published = False

    def sent(self, updates: Message, at: At) -> Message:
        values = updates.values
        chosen = at.uniform(*values.shape).topk(max(1, values.shape[-1] // 8), dim=-1).indices
        kept = clip(values.gather(-1, chosen), self.clip_norm)
        noised = torch.zeros_like(values).scatter(-1, chosen, kept + self.noise_std * at.normal(kept))
        side = {"indices": chosen.masked_fill(~updates.present.unsqueeze(-1), 0)}
        return replace(updates, side=side).with_values(noised)


class PublicNoiseBroadcast(ClientCase):
    """Noise from a public seed is added to the private model that is broadcast, and counts for nothing."""

    observer = AGGREGATE

    def broadcast(self, model: Tensor, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        public = np.random.default_rng([3, context.round]).standard_normal(model.shape[-1], dtype=np.float32)
        return model + 0.05 * torch.from_numpy(public)
