"""Who takes part, and clip norms that follow public or paid rules."""

from typing import ClassVar

import numpy as np
from torch import Tensor

from ....audit.claim import Adjacency, Unit
from ....audit.observer import GLOBAL_MODELS
from ....fl.laws.law import clip
from ....fl.plan import Plan
from ....fl.protection import Context, State
from ...accounting.gaussian import gaussian_curve, gaussian_noise
from ...defense import Prepared
from ..case import At, ClientCase
from ..pairs.accounting import QuantileUnpaid


class SecretCohorts(ClientCase):
    """The hook ``participates`` draws a cohort that other clients do not see; its rate counts as amplification."""

    thinning: ClassVar[float] = 0.3

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        at = At(context=context, state=state, rng=rng)
        return at.uniform(context.replicas, len(context.senders)) < self.thinning


class ReplacedClient(ClientCase):
    """It claims one client replaced by another, which moves the sum by two clip norms at most."""

    @classmethod
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        noise = gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=plan.rounds)
        curve = gaussian_curve(noise=noise, releases=plan.rounds)
        claim = cls.stated(plan, Unit.CLIENT, Adjacency.REPLACE_ONE, GLOBAL_MODELS, curve=curve)
        return Prepared(protection=cls(noise_multiplier=2 * noise), claims=(claim,))


class AdaptiveClientClip(QuantileUnpaid):
    """The clip norm follows a noised count of short updates, which takes half of the budget."""

    count_share: ClassVar[float] = 0.5


class ShrinkingClip(ClientCase):
    """Clip norm and noise shrink together by a public factor .8 per round."""

    published = False

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return clip(values, self.clip_norm * 0.8**at.round)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * 0.8**at.round

    def open_round(self, context: Context, state: State) -> State:
        return {"clip_norm": self.clip_norm * 0.8**context.round}
