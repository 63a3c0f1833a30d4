"""Unusual ways to draw the same noise, and pure noise under a curve."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Claim
from ....audit.curve import ProfileCurve
from ....audit.observer import Observer
from ....fl.laws.law import GaussianLaw, Law
from ....fl.message import Message
from ....fl.plan import Plan
from ...accounting.pure import composed_delta
from ..case import At, ReportCase
from .local import LaplaceReports


class MirroredNoise(ReportCase):
    """The drawn noise gets the sign of the number that it hides, and so has the same law; ``additive`` is false."""

    def noise(self, updates: Message, at: At) -> Tensor:
        noise = super().noise(updates, at)
        return torch.where(self.clipped(updates.values, at) < 0, -noise, noise)

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        found = super().law(observer, plan, client)
        return replace(found, additive=False) if isinstance(found, GaussianLaw) else None


class LazyDraws(ReportCase):
    """Large noised numbers get a second draw, so that the number of draws depends on the noised report."""

    published = False

    def sent(self, updates: Message, at: At) -> Message:
        noised = super().sent(updates, at).values
        large = noised.abs() > self.noise_std
        noised[large] += self.noise_std * at.normal(noised[large])
        return updates.with_values(noised)


class LaplaceWithCurve(LaplaceReports):
    """Laplace noise of epsilon / rounds in each round, with the curve of the exact composition of pure releases."""

    epsilon: ClassVar[float] = 4.0

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        each, knots = cls.epsilon / plan.rounds, np.union1d(np.linspace(0.0, 1.5 * cls.epsilon, 60), cls.epsilon)
        deltas = [composed_delta(each, releases=plan.rounds, epsilon=min(one, cls.epsilon)) for one in knots.tolist()]
        known = tuple(min(1.0, d + 1e-12) if e < cls.epsilon else 0.0 for e, d in zip(knots, deltas, strict=True))
        curve = ProfileCurve(epsilons=tuple(knots.tolist()), delta_remove=known, delta_add=known)
        return tuple(replace(claim, curve=curve) for claim in super().claims_of(plan))
