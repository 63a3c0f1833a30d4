"""Masks and indices that are public or drawn without the data, and public noise."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ....audit.observer import AGGREGATE
from ....fl.laws.law import clip
from ....fl.message import Message
from ....fl.protection import Context, State
from ..case import At, ClientCase, ReportCase


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
