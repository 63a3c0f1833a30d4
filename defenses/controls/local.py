"""Faulty local randomisers, which leak more than their pure epsilon, and unusual correct randomisers with densities."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import ProfileCurve
from ...audit.observer import UPLOADS, Observer
from ...fl.laws import GaussianLaw, Law, Mixing, clip, clip_entries
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..accounting.pure import composed_delta
from ..defense import Prepared
from .case import At, Fault, ProtectionCase, ReportCase, lengths_of


@dataclass(frozen=True, kw_only=True)
class _LocalCase(ProtectionCase, ABC):
    """One random coordinate of each report is sent by Duchi's randomised response, at epsilon ``each`` per report."""

    each: float = 1.0
    clip_norm: float = 0.01
    epsilon = 6.0
    delta = 0.0

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
    def prepare(cls, plan: Plan) -> Prepared:
        claim = cls.stated(plan, Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS, clip_norm=cls.clip_norm)
        return Prepared(protection=cls(each=cls.epsilon / plan.participations), claims=(claim,))


class _Levels(_LocalCase):
    lies: ClassVar[int] = 7
    """Levels other than the true one, as the probability of the truth counts them."""

    def coded(self, values: Tensor, at: At) -> Tensor:
        level = ((values / self.clip_norm + 1) * 3.5).round().long()
        truth = math.exp(self.each) / (math.exp(self.each) + self.lies)
        other = (level + torch.from_numpy(at.rng.integers(1, 8, tuple(values.shape)))) % 8
        return (torch.where(self.coins(values, at) < truth, level, other) / 3.5 - 1) * self.clip_norm


class LevelsAsBits(Fault, _Levels):
    """Randomised response on eight levels that reports the true level with the probability that is correct for two
    levels.
    """

    lies = 1


class _Geometric(_LocalCase):
    def wrapped(self, noise: Tensor) -> Tensor:
        """Return the noise that is added."""
        return noise

    def coded(self, values: Tensor, at: At) -> Tensor:
        steps, shape = (values / self.clip_norm * 8).round().long(), tuple(values.shape)
        # Two values are up to 16 steps apart.
        draws = at.rng.geometric(1 - math.exp(-self.each / 16), (2, *shape))
        noise = self.wrapped(torch.from_numpy(draws[0] - draws[1]))
        return (steps + noise).double() * self.clip_norm / 8 + self.clip_norm / 64


class GeometricWindow(Fault, _Geometric):
    """Geometric noise is wrapped to 31 values around the number, and this window moves with the number."""

    def wrapped(self, noise: Tensor) -> Tensor:
        return noise % 31 - 15


class _TwoHalves(_LocalCase):
    share: ClassVar[float] = 0.5
    """Of the budget, for each of two coordinates."""

    def randomised(self, rows: Tensor, at: At) -> Tensor:
        one = replace(self, each=self.each * self.share)
        halves = rows.tensor_split(2, dim=-1)
        return torch.cat([_LocalCase.randomised(one, part.contiguous(), at) for part in halves], dim=-1)


class TwoPlaces(Fault, _TwoHalves):
    """A broken randomiser: it reports two coordinates, each with the whole epsilon."""

    share = 1.0


class _PublicPlace(_LocalCase):
    def place(self, rows: Tensor, at: At) -> Tensor:
        # A public place for two rounds, from the end of the vector.
        return torch.full((len(rows), 1), (rows.shape[-1] - 1 - at.round // 2) % rows.shape[-1])


class CoinReused(Fault, _PublicPlace):
    """The random number of a coordinate is kept for two rounds, so that a changed answer shows the change's sign."""

    def coins(self, like: Tensor, at: At) -> Tensor:
        fresh = super().coins(like, at)
        if at.round % 2:
            return self.remembered("coins", fresh)
        self.memory["coins"] = fresh
        return fresh


class _GumbelPlace(_LocalCase):
    counted: ClassVar[float] = 2.0
    """The sensitivity of a score: it may change by 2, and so may the normaliser."""

    def place(self, rows: Tensor, at: At) -> Tensor:
        scores = clip_entries(rows, self.clip_norm).double() / self.clip_norm
        gumbel = -torch.log(-torch.log(at.uniform(*rows.shape).clamp(1e-300, 1 - 1e-16)))
        return (self.each / (2 * self.counted) * scores + gumbel).argmax(1, keepdim=True)

    def coded(self, values: Tensor, at: At) -> Tensor:
        return torch.full_like(values, self.clip_norm)


class GumbelScale(Fault, _GumbelPlace):
    """The exponential mechanism that picks a coordinate counts a sensitivity of 1 for scores in [-1, 1]."""

    counted = 1.0


class _Unary(_LocalCase):
    differing: ClassVar[int] = 2
    """Bits in which two values differ."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        rows, at = updates.values.flatten(0, 1), At(context=context, state=state, rng=rng)
        place = self.place(rows, at)
        values = clip_entries(rows.gather(1, place), self.clip_norm)
        bucket = ((values / self.clip_norm + 1) * 3.5).round().long()
        hot = torch.zeros(len(rows), 8, dtype=torch.bool).scatter(1, bucket, True)
        bits = hot ^ (self.coins(hot, at) < 1 / (1 + math.exp(self.each / self.differing)))
        mean = (bits * torch.linspace(-1, 1, 8)).sum(1, keepdim=True) / 8 * self.clip_norm
        sent = torch.zeros_like(rows).scatter(1, place, mean).view_as(updates.values)
        side = {"bits": bits.view(*updates.present.shape, 8) & updates.present.unsqueeze(-1)}
        return replace(updates, side=side).with_values(sent)


class UnaryOff(Fault, _Unary):
    """A broken unary encoding: it flips every bit with the probability for the whole epsilon, although two inputs
    differ in two bits.
    """

    differing = 1


def clip_l1(rows: Tensor, norm: float) -> Tensor:
    """Scale each vector to an L1 norm of at most ``norm``, slightly less for rounding."""
    known = torch.nan_to_num(rows.double(), nan=0.0, posinf=1e30, neginf=-1e30)
    lengths = known.abs().sum(-1, keepdim=True)
    return (known * (norm * (1 - 1e-6) / lengths.clamp_min(norm))).to(rows.dtype)


@dataclass(frozen=True, kw_only=True)
class _ReportLaw(ABC):
    """The density of a whole report; ``scale`` is that of its noise, or the epsilon of one report."""

    clip_norm: float
    scale: float
    mixing: ClassVar[Mixing] = Mixing.NONE

    def contribution(self, rows: Tensor) -> Tensor:
        return clip(rows, self.clip_norm)

    @abstractmethod
    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor: ...

    @abstractmethod
    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor: ...

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        raise ValueError("the coordinates of a report are dependent")

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        row = torch.zeros(dim)
        row[-1] = 10 * self.clip_norm
        return -row, row


class LaplaceRowLaw(_ReportLaw):
    """A vector clipped in L1 plus Laplace noise."""

    def contribution(self, rows: Tensor) -> Tensor:
        return clip_l1(rows, self.clip_norm)

    def drawn(self, rng: np.random.Generator) -> Callable[..., np.ndarray]:
        return rng.laplace

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        noise = self.drawn(rng)(0.0, self.scale, tuple(contribution.shape))
        return (contribution.double() + torch.from_numpy(np.asarray(noise))).to(contribution.dtype)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        return -(release - contribution).double().abs() / self.scale - math.log(2 * self.scale)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        return self.log_densities(release, contribution).sum(-1)


class LogisticRowLaw(LaplaceRowLaw):
    """A vector clipped in L1 plus logistic noise, whose log density changes no faster than that of Laplace noise."""

    def drawn(self, rng: np.random.Generator) -> Callable[..., np.ndarray]:
        return rng.logistic

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        units = (release - contribution).double().abs() / self.scale
        return -units - 2 * torch.log1p(torch.exp(-units)) - math.log(self.scale)


def _units(like: Tensor, rng: np.random.Generator) -> Tensor:
    rows = normal(rng, tuple(like.shape)).to(like)
    return rows / lengths_of(rows).clamp_min(1e-20)


class NormLaw(_ReportLaw):
    """A vector clipped in L2 plus noise with density proportional to exp(-|z| / scale) (Chaudhuri et al. 2011)."""

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        length = rng.gamma(contribution.shape[-1], self.scale, (*contribution.shape[:-1], 1))
        return contribution + torch.from_numpy(np.asarray(length)).to(contribution) * _units(contribution, rng)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        return -lengths_of((release - contribution).double()).squeeze(-1) / self.scale


class HalfSphereLaw(_ReportLaw):
    """A uniform unit vector from the half sphere about the randomly signed update (Duchi, Jordan, Wainwright 2018)."""

    @property
    def up(self) -> float:
        """Return the probability of drawing from the half sphere about the update; ``scale`` is the epsilon of one
        report.
        """
        return 1 / (1 + math.exp(-self.scale))

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        lengths = lengths_of(contribution)
        coins, unit = torch.from_numpy(rng.random((2, *lengths.shape))), _units(contribution, rng)
        # The update is replaced by a vector of full length with its direction or the opposite one, without bias.
        same = (coins[0] < 0.5 + lengths / (2 * self.clip_norm)) == (coins[1] < self.up)
        towards = (unit * contribution).sum(-1, keepdim=True) >= 0
        return torch.where(same == towards, unit, -unit)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        lengths = lengths_of(contribution).squeeze(-1).double()
        mixed = 0.5 + (2 * self.up - 1) * lengths / (2 * self.clip_norm)
        return torch.where((release * contribution).sum(-1) >= 0, mixed, 1 - mixed).log()


class LaplaceReports(ReportCase, ABC):
    """Reports are drawn from a law with pure epsilon, split evenly over the rounds."""

    epsilon = 8.0
    delta = 0.0
    of_rows: ClassVar[type[_ReportLaw]] = LaplaceRowLaw

    @property
    def _law(self) -> _ReportLaw:
        return self.of_rows(clip_norm=self.clip_norm, scale=self.noise_std)

    def sent(self, updates: Message, at: At) -> Message:
        return updates.with_values(self._law.sample(self._law.contribution(updates.values), at.rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        return self._law if observer.rank == UPLOADS.rank else None

    @classmethod
    def needed(cls, plan: Plan) -> float:
        return 2 * cls.clip_norm * plan.rounds / cls.epsilon

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        return (cls.stated(plan, Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS, clip_norm=cls.clip_norm),)


class LogisticL1(LaplaceReports):
    """Logistic noise on updates that are clipped in L1."""

    of_rows = LogisticRowLaw


class GammaNorm(LaplaceReports):
    """Noise of a uniform direction and a length from a gamma distribution."""

    epsilon = 16.0
    of_rows = NormLaw


class UniformSphere(LaplaceReports):
    """Each report is a unit vector from one of two half spheres."""

    of_rows = HalfSphereLaw

    @classmethod
    def needed(cls, plan: Plan) -> float:
        return cls.epsilon / plan.rounds


class ExponentialChoice(LaplaceReports):
    """The exponential mechanism chooses a coordinate, and randomised response its sign, at half of the budget each."""

    published = False
    radius: ClassVar[float] = 0.1

    def sent(self, updates: Message, at: At) -> Message:
        values = torch.nan_to_num(updates.values, nan=0.0).clamp(-self.radius, self.radius)
        # A score moves by the radius at most.
        scores = self.noise_std * values.double().abs() / (2 * self.radius)
        where = (scores + torch.from_numpy(at.rng.gumbel(size=tuple(values.shape)))).argmax(-1, keepdim=True)
        kept = at.uniform(*where.shape) < 1 / (1 + math.exp(-self.noise_std))
        sign = torch.where((values.gather(-1, where) >= 0) == kept, self.radius, -self.radius)
        return updates.with_values(torch.zeros_like(values).scatter(-1, where, sign))

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        return None

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        return Prepared(protection=cls(noise_std=cls.epsilon / (2 * plan.rounds)), claims=cls.claims_of(plan))


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

    epsilon = 4.0

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        each, knots = cls.epsilon / plan.rounds, np.union1d(np.linspace(0.0, 1.5 * cls.epsilon, 60), cls.epsilon)
        deltas = [composed_delta(each, releases=plan.rounds, epsilon=min(one, cls.epsilon)) for one in knots.tolist()]
        known = tuple(min(1.0, d + 1e-12) if e < cls.epsilon else 0.0 for e, d in zip(knots, deltas, strict=True))
        curve = ProfileCurve(epsilons=tuple(knots.tolist()), delta_remove=known, delta_add=known)
        return tuple(replace(claim, curve=curve) for claim in super().claims_of(plan))
