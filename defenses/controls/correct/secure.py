"""Noise that clients share or scale by their sizes."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Adjacency, Unit
from ....audit.observer import AGGREGATE, GLOBAL_MODELS, Observer
from ....fl.laws.law import GaussianLaw, Law
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, State
from ...accounting.gaussian import gaussian_curve, gaussian_noise
from ...defense import Prepared
from ..case import At, ClientCase, ReportCase


class SharesByCount(ReportCase):
    """Each of n clients adds noise of variance std^2 / n, fixed by the plan, and the server sees the sum only."""

    shift: ClassVar[float] = 1.0
    missing: ClassVar[int] = 0
    """The shares that the adversary may subtract."""
    seen: ClassVar[tuple[Adjacency, Observer]] = (Adjacency.ZERO_OUT, AGGREGATE)

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        total = reports.values.sum(1, keepdim=True)
        return Message(values=total, present=reports.present.any(1, keepdim=True), senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return received.values[:, 0] / context.plan.expected_cohort

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        if observer.rank != AGGREGATE.rank:
            return None
        scale = 1 / plan.expected_cohort
        std = scale * self.noise_std * plan.clients**0.5
        return GaussianLaw(clip_norm=self.clip_norm, scale=scale, noise_std=std)

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        noise = gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=plan.rounds)
        curve = gaussian_curve(noise=noise, releases=plan.rounds)
        share = cls.shift * cls.clip_norm * noise / (plan.clients - cls.missing) ** 0.5
        claim = cls.stated(plan, Unit.CLIENT, *cls.seen, curve=curve)
        return Prepared(protection=cls(noise_std=share), claims=(claim,))


class SharesWithoutOne(SharesByCount):
    """n - 1 shares suffice, so that the claim holds for another client who subtracts its own share."""

    shift: ClassVar[float] = 2.0
    missing: ClassVar[int] = 1
    seen: ClassVar[tuple[Adjacency, Observer]] = (Adjacency.REPLACE_ONE, GLOBAL_MODELS)


class WeightedBySizeNow(ClientCase):
    """Updates are weighted by the sizes of the round's plan, with noise for the largest weight of it."""

    published = False

    def mean(self, received: Message, at: At) -> Tensor:
        sizes, senders = at.plan.sizes, received.senders or ()
        weights = torch.tensor([at.plan.weight(one) / sum(sizes) for one in senders]).view(1, -1, 1)
        total = (received.values * weights).sum(1)
        return total + max(sizes) / sum(sizes) * self.noise(total, at)


@dataclass(frozen=True, kw_only=True)
class LocalNoiseBySize(ReportCase):
    """Small clients add more noise than the claim needs, and the largest one adds what it needs."""

    sizes: tuple[int, ...] = (1,)

    def _factor(self, client: int) -> float:
        size = self.sizes[client] if client < len(self.sizes) else max(self.sizes)
        return float((max(self.sizes) / size) ** 0.5)

    def noise(self, updates: Message, at: At) -> Tensor:
        factors = torch.tensor([self._factor(client) for client in updates.senders or ()])
        return super().noise(updates, at) * factors.view(1, -1, 1)

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        found = super().law(observer, plan, client)
        std = self.noise_std * self._factor(client)
        return replace(found, noise_std=std) if isinstance(found, GaussianLaw) else None

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        return Prepared(protection=cls(noise_std=cls.needed(plan), sizes=plan.sizes), claims=cls.claims_of(plan))
