"""Faults of secure sums: masks too small, something in the clear, or little noise; correct noise that clients share."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import IntArray
from ...audit.claim import Adjacency, Unit
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, Observer
from ...fl.laws import GaussianLaw, Law, clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..accounting.gaussian import gaussian_curve, gaussian_noise
from ..defense import Prepared
from ..secure.distributed_gaussian import DistributedGaussian, DistributedGaussianProtection
from ..secure.modular_sum import Masks, draw_masks
from .case import At, ClientCase, Fault, ProtectionCase, ReportCase, lengths_of


@dataclass(frozen=True, kw_only=True)
class _SecureSum(ProtectionCase, DistributedGaussianProtection):
    """Claims one client (zero-out) against a server that sees masked words, their sum and who takes part."""

    def masks(self, invited: Tensor, survived: Tensor, dim: int, rng: np.random.Generator) -> Masks:
        """Draw the masks of one round."""
        return draw_masks(invited, survived, dim, self.sized.grid, rng)

    def shown(self, updates: Message, survived: Tensor) -> dict[str, Tensor]:
        """Return what travels with the masked words, besides the recovered masks."""
        return {}

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        survived = self._survivors(updates.present, rng)
        masks = self.masks(updates.present, survived, updates.values.shape[-1], rng)
        words = self.sized.grid.wrap(self.encoded(updates, rng) + masks.words)
        side = {"recovered": masks.recovered, **self.shown(updates, survived)}
        return replace(updates, present=survived, side=side, masked=True).with_values(words)

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        correct = DistributedGaussian(epsilon=cls.epsilon, delta=cls.delta).prepare(plan)
        return Prepared(protection=cls(**vars(correct.protection)), claims=correct.claims)


class _Pairwise(_SecureSum):
    """Pair masks and own masks, uniform in ``[0, width)``; the client of row ``bare`` agrees on none."""

    bare: ClassVar[bool] = False
    """Whether the last client is left out."""

    @property
    def width(self) -> int:
        """How many values a mask has."""
        return self.sized.grid.modulus

    def masks(self, invited: Tensor, survived: Tensor, dim: int, rng: np.random.Generator) -> Masks:
        replicas, rows = invited.shape
        bare = rows - 1 if self.bare else -1
        grid, words = self.sized.grid, torch.zeros(*invited.shape, dim, dtype=torch.int64)
        recovered = torch.zeros_like(words)
        for row in range(rows):
            own = torch.from_numpy(rng.integers(0, self.width, (replicas, dim))) * (row != bare)
            words[:, row] += own
            recovered[:, row] += own
            for other in range(row + 1, rows):
                agreed = invited[:, row] & invited[:, other] & (bare not in (row, other))
                shared = torch.from_numpy(rng.integers(0, self.width, (replicas, dim))) * agreed.unsqueeze(-1)
                words[:, row] += shared
                words[:, other] -= shared
                # What survivors share with clients that dropped out stays in the sum unless it is recovered.
                recovered[:, row] += shared.masked_fill(survived[:, other, None], 0)
                recovered[:, other] -= shared.masked_fill(survived[:, row, None], 0)
        masks = (grid.wrap(words).masked_fill(~invited.unsqueeze(-1), 0), grid.wrap(recovered))
        return Masks(words=masks[0], recovered=masks[1].masked_fill(~survived.unsqueeze(-1), 0))


class SmallMasks(Fault, _Pairwise):
    """Masks are bytes while words have more bits, so that each word shows its upper bits."""

    width = 256


class LastClientUnmasked(Fault, _Pairwise):
    """The loop over pairs leaves out the last client, which sends its word without a mask."""

    bare = True


class _NothingBeside(_SecureSum):
    def length(self, updates: Message) -> Tensor:
        """Return the number that is sent with each masked word."""
        return torch.zeros(updates.present.shape)

    def shown(self, updates: Message, survived: Tensor) -> dict[str, Tensor]:
        return {"length": self.length(updates).masked_fill(~survived, 0)}


class LengthBesideMask(Fault, _NothingBeside):
    """The raw length travels in the clear beside the masked word, for a check of outliers."""

    def length(self, updates: Message) -> Tensor:
        return lengths_of(updates.values).squeeze(-1).nan_to_num()


class SharesSquared(Fault, _SecureSum):
    """A share of the noise has a deviation of sigma / n instead of sigma / sqrt(n)."""

    def shares_needed(self, invited: int) -> int:
        return invited**2


class _SentInParts(_SecureSum):
    """Each vector is rounded once, and sent in parts that add up to it."""

    parts: ClassVar[int] = 1

    def word(self, vectors: Tensor, invited: Tensor, rng: np.random.Generator) -> Tensor:
        steps = clip(vectors, self.clip_norm).double() / (self.sized.grid.step * self.parts)
        return self._noise(invited, tuple(vectors.shape), rng) + self.parts * (steps + 0.5).floor().long()


class PartsRoundedUp(Fault, _SentInParts):
    """A vector is split into 256 equal parts, one for each helper, and every part is rounded by itself, half up."""

    parts = 256


class OneSidedShares(Fault, _SecureSum):
    """A share of the noise is a geometric number of the right variance, which is never negative."""

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        variance = self.sized.sigma**2 / shares
        return rng.geometric(((1 + 4 * variance) ** 0.5 - 1) / (2 * variance), shape) - 1


class _OverflowBit(_SecureSum):
    def encodes(self, updates: Message) -> Tensor:
        """Return the vectors for which one bit states whether they leave the range of the masked integers."""
        return clip(updates.values, self.clip_norm)

    def shown(self, updates: Message, survived: Tensor) -> dict[str, Tensor]:
        largest = self.sized.grid.step * self.sized.grid.modulus / 2
        over = (self.encodes(updates).nan_to_num().abs() > largest).any(-1)
        return {"overflow": over & survived}


class OverflowBeside(Fault, _OverflowBit):
    """A client that has to cut its numbers to the range of words says so, in one bit beside its masked word."""

    def encodes(self, updates: Message) -> Tensor:
        return updates.values


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
    def prepare(cls, plan: Plan) -> Prepared:
        noise = gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=plan.rounds)
        curve = gaussian_curve(noise=noise, releases=plan.rounds)
        share = cls.shift * cls.clip_norm * noise / (plan.clients - cls.missing) ** 0.5
        claim = cls.stated(plan, Unit.CLIENT, *cls.seen, curve=curve)
        return Prepared(protection=cls(noise_std=share), claims=(claim,))


class SharesWithoutOne(SharesByCount):
    """n - 1 shares suffice, so that the claim holds for another client who subtracts its own share."""

    shift = 2.0
    missing = 1
    seen = (Adjacency.REPLACE_ONE, GLOBAL_MODELS)


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
    def prepare(cls, plan: Plan) -> Prepared:
        return Prepared(protection=cls(noise_std=cls.needed(plan), sizes=plan.sizes), claims=cls.claims_of(plan))
