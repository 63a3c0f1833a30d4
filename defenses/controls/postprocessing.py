"""Correct cases that compute on what is private already, at no privacy cost, or that protect more than the claim
needs.
"""

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Unit
from ...audit.observer import AGGREGATE, UPLOADS
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..defense import Prepared
from .case import At, ClientCase, ReportCase


class ServerMomentum(ClientCase):
    """Velocity and model are functions of the noised sums."""

    published = False

    def initial_state(self, plan: Plan) -> State:
        return {"velocity": torch.zeros(1, plan.layout.dim)}

    def mean(self, received: Message, at: At) -> Tensor:
        velocity: Tensor = at.state["velocity"]
        return 0.9 * velocity + super().mean(received, at)

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"velocity": aggregate}


class RoundedReports(ReportCase):
    """Noised reports are rounded to three decimals."""

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        return sent.with_values((sent.values / 1e-3).round() * 1e-3)


class Float16Reports(ReportCase):
    """Noised reports are sent in half precision."""

    published = False

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        return sent.with_values(sent.values.clamp(-6e4, 6e4).half().float())


class BFloat16Broadcast(ClientCase):
    """The private model is broadcast in bfloat16."""

    published = False

    def broadcast(self, model: Tensor, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return model.bfloat16().float()


class MedianOfReports(ReportCase):
    """The server takes the median of noised reports in each coordinate."""

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        rows = received.values.masked_fill(~received.present.unsqueeze(-1), torch.nan)
        return rows.nanmedian(dim=1).values.nan_to_num(nan=0.0) if rows.shape[1] else rows.sum(1)


class SoftThreshold(ClientCase):
    """The server shrinks the noised mean towards zero by one standard deviation of its noise."""

    observer = AGGREGATE
    published = False

    def mean(self, received: Message, at: At) -> Tensor:
        noised = super().mean(received, at)
        return noised.sign() * (noised.abs() - self.std / self.divisor(at.plan)).clamp_min(0)


class TripleNoise(ReportCase):
    """Reports have three times the noise that the claim needs."""

    @classmethod
    def deviation(cls, plan: Plan) -> float:
        return 3 * cls.needed(plan)


class MoreNoiseOnSomeCoordinates(ReportCase):
    """Every third coordinate gets five times the noise that the claim needs."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        places = torch.arange(updates.values.shape[-1])
        return super().noise(updates, at) * torch.where(places % 3 == 0, 5.0, 1.0)


class ConstantReports(ReportCase):
    """Every client sends the same public constant without noise, so that any claim holds."""

    published = False
    epsilon = 0.5

    def sent(self, updates: Message, at: At) -> Message:
        return updates.with_values(torch.full_like(updates.values, 0.01))

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        return Prepared(protection=cls(), claims=(cls.stated(plan, Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS),))


class NoiseByPublicLoss(ClientCase):
    """The noise is doubled while the loss of the released model on public data is high."""

    published = False

    def noise(self, like: Tensor, at: At) -> Tensor:
        loss = at.context.public_loss
        high = loss() > 1.5 if loss is not None else torch.zeros(len(like), dtype=torch.bool)
        return super().noise(like, at) * torch.where(high, 2.0, 1.0).unsqueeze(-1)
