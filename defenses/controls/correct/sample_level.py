"""One sample is protected, at the client."""

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Adjacency, Claim, Unit
from ....audit.observer import UPLOADS
from ....fl.laws.law import clip, clipped_sum, lot_sum
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, State
from ....fl.streams import normal
from ...accounting.gaussian import poisson_rate
from ...defense import Prepared
from ..case import At, ReportCase, SampleCase, lengths_of
from .local import clip_l1


class NormalisedGradients(SampleCase):
    """Automatic clipping scales each sample's gradient to a length below the clip norm."""

    published = False

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        rows = torch.nan_to_num(gradients)
        rows = rows / (lengths_of(rows) + 0.01) * self.clip_norm
        return clipped_sum(rows, present, self.clip_norm)


class LaplaceSteps(SampleCase):
    """The sum of gradients clipped in L1 gets Laplace noise, with the pure amplification of Poisson lots."""

    published = False
    epsilon: ClassVar[float] = 8.0
    delta: ClassVar[float] = 0.0

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        return lot_sum(clip_l1(gradients, self.clip_norm), present)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return torch.from_numpy(at.rng.laplace(0.0, self.std, tuple(like.shape))).float()

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        each = math.log1p(math.expm1(cls.epsilon / plan.steps) / poisson_rate("lot", plan.lot))
        claim = cls.stated(plan, Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS, clip_norm=cls.clip_norm)
        return Prepared(protection=cls(noise_multiplier=1 / each), claims=(claim,))


class SampleInReport(ReportCase):
    """No gradient is clipped; the whole report is clipped and noised, which also protects any one sample."""

    published = False

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        (report,) = super().claims_of(plan)
        both = (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE)
        return tuple(cls.stated(plan, Unit.SAMPLE, one, UPLOADS, curve=report.curve) for one in both)


class AdaptiveSampleClip(SampleCase):
    """Each client's clip norm follows a noised count of its short gradients, which takes half of the budget."""

    published = False

    def initial_state(self, plan: Plan) -> State:
        return {"clip_norm": {client: torch.tensor([self.clip_norm]) for client in range(plan.clients)}}

    def _bound(self, state: State, client: int) -> Tensor:
        found: Tensor = state["clip_norm"].get(client, torch.tensor([self.clip_norm]))
        return found.view(-1, 1)

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        bound = self._bound(at.state, at.client).unsqueeze(-1).expand(len(gradients), -1, -1)
        return lot_sum(clip(gradients, bound), present)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return 2**0.5 * self.noise_multiplier * self._bound(at.state, at.client) * at.normal(like)

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lengths = lengths_of(torch.nan_to_num(gradients)).squeeze(-1)
        halves = (lengths <= self._bound(state, client)).float() - 0.5
        total = halves.masked_fill(~present, 0).sum(1, keepdim=True)
        noise = self.noise_multiplier / 2**0.5 * normal(rng, tuple(total.shape))
        return 0.5 + (total + noise) / context.plan.expected_lot(client)

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        bounds = dict(state["clip_norm"])
        for row, client in enumerate(received.senders or ()):
            share = received.side["query"][:, row].mean((1, 2))
            old = self._bound(state, client).squeeze(1)
            new = (old * torch.exp(-0.2 * (share - 0.5))).clamp(1e-3, 1e3)
            bounds[client] = torch.where(received.present[:, row], new, old)
        return {"clip_norm": bounds}
