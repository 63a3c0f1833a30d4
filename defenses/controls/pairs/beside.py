"""The real bugs of this family: something raw is sent, stored or broadcast beside the protected update."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ....fl.message import Message
from ....fl.protection import Context, State
from ....fl.streams import normal
from ..case import At, ReportCase, SampleCase, lengths_of


class ClippedFlagSide(ReportCase):
    """One exact bit per report states whether the update was clipped."""

    curve = False

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        over = lengths_of((updates if self.broken else sent).values).squeeze(-1) > self.clip_norm
        return replace(sent, side={"was_clipped": over & sent.present})


class RawSignsSide(ReportCase):
    """The signs of the raw update are sent with the noised numbers, to help a compressor."""

    published = False

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        signs = (updates if self.broken else sent).values > 0
        return replace(sent, side={"signs": signs & sent.present.unsqueeze(-1)})


class TopIndicesSide(ReportCase):
    """The positions of the eight largest raw coordinates are sent with the report."""

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        rows = (updates if self.broken else sent).values
        return replace(sent, side={"top": rows.abs().topk(min(8, rows.shape[-1]), dim=-1).indices})


class CompressedSize(ReportCase):
    """The size of the packet that is reported is that of the sparse raw update, not of the noised one."""

    curve = False

    def sent(self, updates: Message, at: At) -> Message:
        kept = (self.clipped(updates.values, at).abs() > 1e-3 * self.clip_norm).sum(-1)
        size = kept if self.broken else torch.full_like(kept, updates.values.shape[-1])
        return replace(super().sent(updates, at), side={"bytes": (4 * size).masked_fill(~updates.present, 0)})


class LowBits(ReportCase):
    """The lowest bit of every quantised, noised number is the sign of the raw number, by a slip of packing."""

    published = False

    def sent(self, updates: Message, at: At) -> Message:
        sent, step = super().sent(updates, at), self.noise_std / 256
        grid = (sent.values / (2 * step)).round() * 2
        return sent.with_values((grid + (updates.values > 0) * self.broken) * step)


class LossWord(ReportCase):
    """A metric of the raw update, its product with a public direction, is uploaded in half precision."""

    curve = False

    def sent(self, updates: Message, at: At) -> Message:
        public = torch.from_numpy(np.random.default_rng(7).standard_normal(updates.values.shape[-1], dtype=np.float32))
        loss = (updates.values * public).mean(-1).nan_to_num() * self.broken
        return replace(super().sent(updates, at), side={"loss": loss.masked_fill(~updates.present, 0).half()})


class LotSizeQuery(SampleCase):
    """The client's log line states the exact size of each lot."""

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        count = present.sum(1, keepdim=True).float()
        return count if self.broken else torch.full_like(count, context.plan.expected_lot(client))


class GradNormQuery(SampleCase):
    """The mean gradient norm of each lot is reported as a training metric without noise."""

    published = False

    @property
    def std(self) -> float:
        # Sum and mean norm together have a sensitivity of sqrt(2) clip norms.
        return 2**0.5 * super().std

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lengths = lengths_of(gradients).squeeze(-1).nan_to_num(posinf=self.clip_norm).clamp(max=self.clip_norm)
        total = lengths.masked_fill(~present, 0).sum(1, keepdim=True)
        noise = self.std * normal(rng, tuple(total.shape))
        return (total + noise * (not self.broken)) / context.plan.expected_lot(client)
