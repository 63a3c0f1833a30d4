"""Define cases, which are protections with their own claim: unusual correct ones, and faults of correct ones.

A case is no defense that a suite could name. The suite ``mutants`` finds it by its class in a file of this folder: a
``Fault``, which is audited together with the case that it breaks, or a correct case, which no audit must refute.
"""

from abc import ABC
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import Curve
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, UPLOADS, Observer
from ...fl.laws import GaussianLaw, Law, clip, clipped_sum
from ...fl.layout import Layout
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal, uniform
from ..accounting.gaussian import (
    SampledGaussian,
    calibrate_sampled_gaussian,
    gaussian_curve,
    gaussian_noise,
)
from ..clipped.claims import poisson_steps
from ..defense import Prepared


@dataclass(frozen=True, kw_only=True)
class At:
    """The place in a run at which a hook is called: round, public state, random generator and, for a hook of one
    client, the client.
    """

    context: Context
    state: State
    rng: np.random.Generator
    client: int = -1

    @property
    def round(self) -> int:
        """Return the number of the round."""
        return self.context.round

    @property
    def plan(self) -> Plan:
        """Return the plan of the federation that runs."""
        return self.context.plan

    def normal(self, like: Tensor) -> Tensor:
        """Draw standard normal numbers in the shape of ``like``."""
        return normal(self.rng, tuple(like.shape))

    def uniform(self, *shape: int) -> Tensor:
        """Draw double-precision uniform numbers in [0, 1)."""
        return uniform(self.rng, shape, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class ProtectionCase(Protection, ABC):
    """The base class of cases: a protection that also states its claim, by ``prepare``.

    Attributes:
        sampled: what the federation samples for it: samples, clients, or nothing (REPORT).
        local_steps: steps that a client takes per round; more than one is FedAvg.
        published: whether it publishes its noise law.
        curve: whether its claim states a trade-off curve.
    """

    clip_norm: float = 1.0
    memory: dict[Hashable, Tensor] = field(default_factory=dict, compare=False, repr=False)
    """What a fault keeps between rounds; a correct case keeps its state in the public state."""
    sampled: ClassVar[Unit] = Unit.REPORT
    local_steps: ClassVar[int] = 1
    published: ClassVar[bool] = True
    curve: ClassVar[bool] = True
    epsilon: ClassVar[float] = 4.0
    delta: ClassVar[float] = 1e-5

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        """Calibrate the protection to the plan, and state its claims."""
        raise TypeError(f"{cls.__name__} must define the class method prepare(plan)")

    @classmethod
    def stated(
        cls,
        plan: Plan,
        unit: Unit,
        adjacency: Adjacency,
        observer: Observer,
        *,
        curve: Curve | None = None,
        rounds: int | None = None,
        **parameters: float,
    ) -> Claim:
        """Return the claim of the case's budget, over all rounds of the plan or over the given number of rounds."""
        claim = Claim.stated(
            epsilon=cls.epsilon,
            delta=cls.delta,
            unit=unit,
            adjacency=adjacency,
            observer=observer,
            rounds=rounds or plan.rounds,
        )
        return replace(claim, curve=curve if cls.curve else None, parameters=parameters)

    def remembered(self, name: Hashable, fresh: Tensor) -> Tensor:
        """Return the value that ``memory`` holds under a name, or ``fresh`` if it holds none of that shape."""
        old = self.memory.get(name)
        return old if old is not None and old.shape == fresh.shape else fresh


class Fault(ProtectionCase, ABC):
    """A case that breaks one thing in a correct case: ``class X(Fault, Y)`` overrides a method of the case ``Y``, or
    one of its numbers by ``bug``, and states the claim that ``Y`` states with the settings of ``X``.
    """

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        correct = cls.correct(plan)
        return replace(correct, protection=cls(**vars(correct.protection) | cls.bug(plan)))

    @classmethod
    def correct(cls, plan: Plan) -> Prepared:
        """Calibrate the correct version, which states the same claims as the broken one."""
        stated = super().prepare(plan)
        case = next(base for base in cls.__mro__ if issubclass(base, ProtectionCase) and not issubclass(base, Fault))
        return replace(stated, protection=case(**vars(stated.protection)))

    @classmethod
    def bug(cls, plan: Plan) -> dict[str, object]:
        """Return the fields in which the broken version differs from the correct one."""
        return {}


def lengths_of(rows: Tensor) -> Tensor:
    """Return the L2 norm ``(..., 1)`` of each vector."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return lengths


def layers_of(layout: Layout) -> list[slice]:
    """Return the slice of every layer; unused weights belong to the last one."""
    found = [layout.slices[name] for name in layout.names]
    return [*found[:-1], slice(found[-1].start, layout.dim)]


@dataclass(frozen=True, kw_only=True)
class SampledCase(ProtectionCase, ABC):
    """Gaussian noise on the clipped sum of Poisson-sampled units; the case claims privacy for one unit (add/remove)."""

    noise_multiplier: float = 1.0
    observer: ClassVar[Observer]
    thinning: ClassVar[float] = 1.0
    """The share of the sampled units that the protection keeps; the accountant counts on it."""

    @property
    def std(self) -> float:
        """Return the standard deviation of the noise on one sum."""
        return self.noise_multiplier * self.clip_norm

    def noise(self, like: Tensor, at: At) -> Tensor:
        """Draw the noise of one sum of contributions."""
        return self.std * at.normal(like)

    @classmethod
    def needed(cls, plan: Plan) -> SampledGaussian:
        """Return the mechanism that satisfies the claim."""
        rate, steps = poisson_steps(plan, cls.sampled)
        rate *= cls.thinning
        return calibrate_sampled_gaussian(epsilon=cls.epsilon, delta=cls.delta, rate=rate, steps=steps)

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        right = cls.needed(plan)
        claim = cls.stated(
            plan,
            cls.sampled,
            Adjacency.ADD_REMOVE,
            cls.observer,
            curve=right.curve(cls.epsilon),
            clip_norm=cls.clip_norm,
            rate=right.rate,
        )
        return Prepared(protection=cls(noise_multiplier=right.sigma), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class SampleCase(SampledCase, ABC):
    """DP-SGD at each client. The case claims privacy for one sample (add/remove) against the server that sees every
    upload.
    """

    per_sample: bool = True
    sampled = Unit.SAMPLE
    observer = UPLOADS

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        """Return the clipped sum of a lot."""
        return clipped_sum(gradients, present, self.clip_norm)

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        """Return the noised direction of one local step."""
        total = self.total(gradients, present, at)
        return (total + self.noise(total, at)) / at.plan.expected_lot(at.client)

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        return self.step(gradients, present, At(context=context, state=state, rng=rng, client=client))

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        linear, steps = plan.algorithm.linear_scale, plan.algorithm.local_steps
        if not self.published or linear is None or observer.rank < UPLOADS.rank:
            return None
        scale = linear / plan.expected_lot(client)
        std = abs(scale) * self.std * steps**0.5
        rate = plan.lot.rate(round(plan.weight(client)))
        return GaussianLaw(clip_norm=self.clip_norm, scale=scale, noise_std=std, rate=rate, steps=steps)


class ClientCase(SampledCase, ABC):
    """DP-FedAvg with a trusted server. The case claims privacy for one client (add/remove) against other clients, who
    see every model.
    """

    sampled = Unit.CLIENT
    observer = GLOBAL_MODELS

    def clipped(self, values: Tensor, at: At) -> Tensor:
        """Return the updates as clients clip them."""
        return clip(values, self.clip_norm)

    def total(self, received: Message, at: At) -> Tensor:
        """Return the sum to which noise is added."""
        return received.values.sum(1)

    def divisor(self, plan: Plan) -> float:
        """Return the public number by which the noised sum is divided."""
        return plan.expected_cohort * self.thinning

    def mean(self, received: Message, at: At) -> Tensor:
        """Return the noised mean."""
        total = self.total(received, at)
        return (total + self.noise(total, at)) / self.divisor(at.plan)

    def sent(self, updates: Message, at: At) -> Message:
        """Return what clients send."""
        return updates.with_values(self.clipped(updates.values, at))

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return self.sent(updates, At(context=context, state=state, rng=rng))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return self.mean(received, At(context=context, state=state, rng=rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        if not self.published or not GLOBAL_MODELS.rank <= observer.rank <= AGGREGATE.rank:
            return None
        scale = 1 / self.divisor(plan)
        rate = plan.cohort_rate * self.thinning
        return GaussianLaw(clip_norm=self.clip_norm, scale=scale, noise_std=scale * self.std, rate=rate)


@dataclass(frozen=True, kw_only=True)
class ReportCase(ProtectionCase, ABC):
    """Local DP by Gaussian noise on the clipped update. The case claims privacy for any two values of one client's
    report.
    """

    noise_std: float = 1.0

    def clipped(self, values: Tensor, at: At) -> Tensor:
        """Return the updates as clients clip them."""
        return clip(values, self.clip_norm)

    def noise(self, updates: Message, at: At) -> Tensor:
        """Draw the noise of all reports."""
        return self.noise_std * at.normal(updates.values)

    def sent(self, updates: Message, at: At) -> Message:
        """Return the noised reports."""
        return updates.with_values(self.clipped(updates.values, at) + self.noise(updates, at))

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return self.sent(updates, At(context=context, state=state, rng=rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        if not self.published or observer.rank < UPLOADS.rank:
            return None
        return GaussianLaw(clip_norm=self.clip_norm, scale=1.0, noise_std=self.noise_std)

    @classmethod
    def needed(cls, plan: Plan) -> float:
        """Return the standard deviation that satisfies the claim: two reports are two clip norms apart."""
        return 2 * cls.clip_norm * gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=plan.participations)

    @classmethod
    def deviation(cls, plan: Plan) -> float:
        """Return the standard deviation of the noise that is really added."""
        return cls.needed(plan)

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        """Return the claims of the case."""
        curve = gaussian_curve(noise=cls.needed(plan) / (2 * cls.clip_norm), releases=plan.participations)
        both = (Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS)
        return (cls.stated(plan, *both, curve=curve, clip_norm=cls.clip_norm),)

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        return Prepared(protection=cls(noise_std=cls.deviation(plan)), claims=cls.claims_of(plan))
