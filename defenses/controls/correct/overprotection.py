"""More protection than the claim needs."""

import torch
from torch import Tensor

from ....audit.claim import Adjacency, Unit
from ....audit.observer import UPLOADS
from ....fl.message import Message
from ....fl.plan import Plan
from ...defense import Prepared
from ..case import At, ClientCase, ReportCase


class TripleNoise(ReportCase):
    """Reports have three times the noise that the claim needs."""

    @classmethod
    def deviation(cls, plan: Plan, *, broken: bool) -> float:
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
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        return Prepared(protection=cls(), claims=(cls.stated(plan, Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS),))


class NoiseByPublicLoss(ClientCase):
    """The noise is doubled while the loss of the released model on public data is high."""

    published = False

    def noise(self, like: Tensor, at: At) -> Tensor:
        loss = at.context.public_loss
        high = loss() > 1.5 if loss is not None else torch.zeros(len(like), dtype=torch.bool)
        return super().noise(like, at) * torch.where(high, 2.0, 1.0).unsqueeze(-1)
