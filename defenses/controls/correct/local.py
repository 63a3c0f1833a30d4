"""Local randomisers other than the Gaussian, with the density of their reports as the law."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Adjacency, Claim, Unit
from ....audit.observer import UPLOADS, Observer
from ....fl.laws.law import Law, Mixing, clip
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.streams import normal
from ...defense import Prepared
from ..case import At, ReportCase, lengths_of


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
        """Return the probability of the half sphere about the update; ``scale`` is the epsilon of one report."""
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

    epsilon: ClassVar[float] = 8.0
    delta: ClassVar[float] = 0.0
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

    of_rows: ClassVar[type[_ReportLaw]] = LogisticRowLaw


class GammaNorm(LaplaceReports):
    """Noise of a uniform direction and a length from a gamma distribution."""

    epsilon: ClassVar[float] = 16.0
    of_rows: ClassVar[type[_ReportLaw]] = NormLaw


class UniformSphere(LaplaceReports):
    """Each report is a unit vector from one of two half spheres."""

    of_rows: ClassVar[type[_ReportLaw]] = HalfSphereLaw

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
    def prepare(cls, plan: Plan, *, broken: bool = False) -> Prepared:
        return Prepared(protection=cls(noise_std=cls.epsilon / (2 * plan.rounds)), claims=cls.claims_of(plan))
