"""The real bugs of this family: a local randomiser of one coordinate of a report leaks more than its pure epsilon."""

import math
from abc import ABC
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Adjacency, Unit
from ....audit.observer import UPLOADS
from ....fl.laws.law import clip_entries
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, State
from ...defense import Prepared
from ..case import At, Case


@dataclass(frozen=True, kw_only=True)
class _LocalCase(Case, ABC):
    """One random coordinate of each report is sent by Duchi's randomised response, at epsilon ``each`` per report."""

    each: float = 1.0
    clip_norm: float = 0.01
    epsilon: ClassVar[float] = 6.0
    delta: ClassVar[float] = 0.0

    def place(self, rows: Tensor, at: At) -> Tensor:
        """Draw the coordinate of each of the rows ``(n, d)`` that is sent."""
        return torch.from_numpy(at.rng.integers(0, rows.shape[-1], (len(rows), 1)))

    def coins(self, like: Tensor, at: At) -> Tensor:
        """Draw the uniform numbers that decide."""
        return at.uniform(*like.shape)

    def coded(self, values: Tensor, at: At) -> Tensor:
        """Return one random number for each of the values in [-clip_norm, clip_norm]."""
        up = self.coins(values, at) < (1 + values.double() / self.clip_norm * math.tanh(self.each / 2)) / 2
        return torch.where(up, self.clip_norm, -self.clip_norm)

    def randomised(self, rows: Tensor, at: At) -> Tensor:
        """Return the reports of rows ``(n, d)``."""
        place = self.place(rows, at)
        sent = self.coded(clip_entries(rows.gather(1, place), self.clip_norm), at)
        return torch.zeros_like(rows).scatter(1, place, sent.to(rows.dtype))

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        rows = updates.values.flatten(0, 1)
        at = At(context=context, state=state, rng=rng)
        return updates.with_values((self.randomised(rows, at) if len(rows) else rows).view_as(updates.values))

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        claim = cls.stated(plan, Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS, clip_norm=cls.clip_norm)
        return Prepared(protection=cls(each=cls.epsilon / plan.participations, broken=broken), claims=(claim,))


class LevelsAsBits(_LocalCase):
    """Randomised response on eight levels tells the truth with the probability for two."""

    def coded(self, values: Tensor, at: At) -> Tensor:
        level = ((values / self.clip_norm + 1) * 3.5).round().long()
        truth = math.exp(self.each) / (math.exp(self.each) + (1 if self.broken else 7))
        other = (level + torch.from_numpy(at.rng.integers(1, 8, tuple(values.shape)))) % 8
        return (torch.where(self.coins(values, at) < truth, level, other) / 3.5 - 1) * self.clip_norm


class GeometricWindow(_LocalCase):
    """Geometric noise is wrapped to 31 values around the number, and this window moves with the number."""

    def coded(self, values: Tensor, at: At) -> Tensor:
        steps, shape = (values / self.clip_norm * 8).round().long(), tuple(values.shape)
        # Two values are up to 16 steps apart.
        draws = at.rng.geometric(1 - math.exp(-self.each / 16), (2, *shape))
        noise = torch.from_numpy(draws[0] - draws[1])
        noise = noise % 31 - 15 if self.broken else noise
        return (steps + noise).double() * self.clip_norm / 8 + self.clip_norm / 64


class TwoPlaces(_LocalCase):
    """Two coordinates are reported, each at the whole budget."""

    def randomised(self, rows: Tensor, at: At) -> Tensor:
        half = self if self.broken else replace(self, each=self.each / 2)
        halves = rows.tensor_split(2, dim=-1)
        return torch.cat([_LocalCase.randomised(half, part.contiguous(), at) for part in halves], dim=-1)


class CoinReused(_LocalCase):
    """The random number of a coordinate is kept for two rounds, so that a changed answer shows the change's sign."""

    def place(self, rows: Tensor, at: At) -> Tensor:
        # A public place for two rounds, from the end of the vector.
        return torch.full((len(rows), 1), (rows.shape[-1] - 1 - at.round // 2) % rows.shape[-1])

    def coins(self, like: Tensor, at: At) -> Tensor:
        fresh = super().coins(like, at)
        if not self.broken or at.round % 2:
            return self.remembered("coins", fresh) if self.broken else fresh
        self.memory["coins"] = fresh
        return fresh


class GumbelScale(_LocalCase):
    """The exponential mechanism that picks a coordinate counts a sensitivity of 1 for scores in [-1, 1]."""

    def place(self, rows: Tensor, at: At) -> Tensor:
        scores = clip_entries(rows, self.clip_norm).double() / self.clip_norm
        gumbel = -torch.log(-torch.log(at.uniform(*rows.shape).clamp(1e-300, 1 - 1e-16)))
        # A score may change by 2, and so may the normaliser.
        return (self.each / (2 if self.broken else 4) * scores + gumbel).argmax(1, keepdim=True)

    def coded(self, values: Tensor, at: At) -> Tensor:
        return torch.full_like(values, self.clip_norm)


class UnaryOff(_LocalCase):
    """Unary encoding flips every bit with the probability for the whole epsilon, although two bits differ."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        rows, at = updates.values.flatten(0, 1), At(context=context, state=state, rng=rng)
        place = self.place(rows, at)
        values = clip_entries(rows.gather(1, place), self.clip_norm)
        bucket = ((values / self.clip_norm + 1) * 3.5).round().long()
        hot = torch.zeros(len(rows), 8, dtype=torch.bool).scatter(1, bucket, True)
        bits = hot ^ (self.coins(hot, at) < 1 / (1 + math.exp(self.each / (1 if self.broken else 2))))
        mean = (bits * torch.linspace(-1, 1, 8)).sum(1, keepdim=True) / 8 * self.clip_norm
        sent = torch.zeros_like(rows).scatter(1, place, mean).view_as(updates.values)
        side = {"bits": bits.view(*updates.present.shape, 8) & updates.present.unsqueeze(-1)}
        return replace(updates, side=side).with_values(sent)
