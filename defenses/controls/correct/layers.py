"""Layers with their own clip norms and noise, accounted together."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ....audit.claim import Adjacency, Unit
from ....audit.observer import UPLOADS, Observer
from ....fl.laws.law import Law
from ....fl.laws.layered_law import LayeredGaussianLaw, clip_layers, layer_starts, spread_layers
from ....fl.message import Message
from ....fl.plan import Plan
from ...accounting.gaussian import gaussian_curve, gaussian_noise
from ...defense import Prepared
from ..case import At, ReportCase, SampleCase


def _norms(plan: Plan) -> tuple[float, ...]:
    """Public clip norms that differ between layers."""
    return tuple(0.7**number for number in range(len(plan.layout.names)))


@dataclass(frozen=True, kw_only=True)
class PerLayerJoint(ReportCase):
    """Every layer spends the same share of the budget of one report."""

    stds: tuple[float, ...] = (1.0,)

    def _law(self, plan: Plan) -> LayeredGaussianLaw:
        return LayeredGaussianLaw(starts=layer_starts(plan.layout), clip_norms=_norms(plan), noise_stds=self.stds)

    def sent(self, updates: Message, at: At) -> Message:
        law = self._law(at.plan)
        return updates.with_values(law.sample(law.contribution(updates.values), at.rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        return self._law(plan) if observer.rank == UPLOADS.rank else None

    @classmethod
    def spent(cls, layers: int) -> tuple[float, ...]:
        """Return each layer's share of the squared mu."""
        return (1 / layers,) * layers

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        norms = _norms(plan)
        pairs = zip(norms, cls.spent(len(norms)), strict=True)
        stds = tuple(cls.needed(plan) * norm / math.sqrt(share) for norm, share in pairs)
        return Prepared(protection=cls(stds=stds), claims=cls.claims_of(plan))


class PerLayerUneven(PerLayerJoint):
    """The first layer spends a tenth of the squared mu, and the others share the rest."""

    @classmethod
    def spent(cls, layers: int) -> tuple[float, ...]:
        return (0.1, *(0.9 / (layers - 1),) * (layers - 1)) if layers > 1 else (1.0,)


class PerLayerSamples(SampleCase):
    """Every sample's gradient is clipped layer by layer in every local step, without amplification."""

    published = False

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        rows = clip_layers(gradients, layer_starts(at.plan.layout), _norms(at.plan))
        return rows.masked_fill(~present.unsqueeze(-1), 0).sum(1)

    def noise(self, like: Tensor, at: At) -> Tensor:
        norms = torch.tensor(_norms(at.plan))
        stds = spread_layers(self.noise_multiplier * norms, layer_starts(at.plan.layout), like.shape[-1])
        return stds * at.normal(like)

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        noise = gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=plan.steps)
        curve = gaussian_curve(noise=noise, releases=plan.steps)
        claim = cls.stated(plan, Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS, curve=curve)
        return Prepared(protection=cls(noise_multiplier=noise * len(_norms(plan)) ** 0.5), claims=(claim,))
