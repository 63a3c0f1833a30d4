"""Correct schedules over the rounds, and claims about fewer rounds, replaced clients or the final model only."""

import math

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import GaussianCurve
from ...audit.observer import FINAL_MODEL, GLOBAL_MODELS, UPLOADS
from ...fl.laws import clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..accounting.gaussian import gaussian_curve, gaussian_noise
from ..defense import Prepared
from .case import At, ClientCase, ReportCase


class DecreasingNoise(ReportCase):
    """The noise decreases by a public factor .8 per round, and Gaussians of unequal noise compose exactly."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        return super().noise(updates, at) * 0.8**at.round

    @classmethod
    def deviation(cls, plan: Plan) -> float:
        squares = sum(0.8 ** (-2 * number) for number in range(plan.rounds))
        return cls.needed(plan) * math.sqrt(squares / plan.rounds)


class DelayedRounds(ClientCase):
    """The server applies each round's noised mean one round later; the noise is drawn by the hook ``query``."""

    published = False

    def initial_state(self, plan: Plan) -> State:
        return {"held": torch.zeros(1, plan.layout.dim)}

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        held: Tensor = state["held"]
        return held.expand(context.replicas, -1).clone()

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        return {"held": self.mean(received, At(context=context, state=state, rng=rng))}


def _half(plan: Plan) -> int:
    return -(-plan.rounds // 2)


def _half_noise(case: type[ReportCase], plan: Plan) -> float:
    """Noise for the first half of the rounds."""
    return case.needed(plan) * math.sqrt(_half(plan) / plan.rounds)


def _half_claim(case: type[ReportCase], plan: Plan) -> Claim:
    curve = GaussianCurve(2 * case.clip_norm * math.sqrt(_half(plan)) / _half_noise(case, plan))
    return case.stated(plan, Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS, curve=curve, rounds=_half(plan))


class FewerRoundsThenSilent(ReportCase):
    """It claims the first half of the rounds, and no client takes part in the others."""

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return torch.full((context.replicas, len(context.senders)), context.round < _half(context.plan))

    @classmethod
    def deviation(cls, plan: Plan) -> float:
        return _half_noise(cls, plan)

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        return (_half_claim(cls, plan),)


class FewerRoundsThenWeaker(ReportCase):
    """One claim is about the first half of the rounds; a weaker one is about all, and later rounds have less noise."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        return super().noise(updates, at) * (1.0 if at.round < _half(at.plan) else 0.25)

    @classmethod
    def deviation(cls, plan: Plan) -> float:
        return _half_noise(cls, plan)

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        later = plan.rounds - _half(plan)
        mu = 2 * cls.clip_norm * math.sqrt(_half(plan) + 16 * later) / _half_noise(cls, plan)
        return (_half_claim(cls, plan), Claim.stated(delta=cls.delta, mu=mu, rounds=plan.rounds))


class FinalModelOnly(ReportCase):
    """Every broadcast is clipped to a ball and noised, and the claims are about the final model only."""

    published = False

    def sent(self, updates: Message, at: At) -> Message:
        return updates

    def broadcast(self, model: Tensor, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return clip(model, self.clip_norm) + self.noise_std * normal(rng, tuple(model.shape))

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        noise = gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=1)
        curve = GaussianCurve(1 / noise)
        claims = tuple(
            cls.stated(plan, Unit.CLIENT, adjacency, FINAL_MODEL, curve=curve)
            for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
        )
        return Prepared(protection=cls(noise_std=2 * cls.clip_norm * noise), claims=claims)


class ReplacedClient(ClientCase):
    """It claims one client replaced by another, which moves the sum by two clip norms at most."""

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        noise = gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=plan.rounds)
        curve = gaussian_curve(noise=noise, releases=plan.rounds)
        claim = cls.stated(plan, Unit.CLIENT, Adjacency.REPLACE_ONE, GLOBAL_MODELS, curve=curve)
        return Prepared(protection=cls(noise_multiplier=2 * noise), claims=(claim,))


class ShrinkingClip(ClientCase):
    """Clip norm and noise shrink together by a public factor .8 per round."""

    published = False

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return clip(values, self.clip_norm * 0.8**at.round)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * 0.8**at.round

    def open_round(self, context: Context, state: State) -> State:
        return {"clip_norm": self.clip_norm * 0.8**context.round}
