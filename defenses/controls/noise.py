"""Faults of noise: missing somewhere, rarely or after one round, correlated, of a wrong shape, or at a wrong place."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import AGGREGATE
from ...fl.laws import clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from ..defense import Prepared
from ..local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection
from ..secure.distributed_gaussian import DistributedGaussian, DistributedGaussianProtection
from .case import At, ClientCase, Fault, ReportCase, SampleCase, layers_of, lengths_of
from .fault import Control


class LastCoordinateBare(Fault, SampleCase):
    """A slice that ends one too early leaves the last coordinate without noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        noise[..., -1] = 0
        return noise


class FirstCoordinatesQuarter(Fault, ClientCase):
    """The first four coordinates get a quarter of the noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        noise[..., :4] *= 0.25
        return noise


class FirstClientWeak(Fault, SampleCase):
    """Client 0, a trusted reference site, adds half of its noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * (0.5 if at.client == 0 else 1.0)


class AfterRoundThree(Fault, SampleCase):
    """From the fourth round on a schedule multiplies the noise by 0.1."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * (0.1 if at.round >= 3 else 1.0)


class SharedAcrossLayers(Fault, SampleCase):
    """The generators of all layers get one seed, so that layers begin with the same noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise, layers = super().noise(like, at), layers_of(at.plan.layout)
        return torch.cat([noise[..., : part.stop - part.start] for part in layers], dim=-1)


class _NoiseForRareClass(SampleCase):
    """A client whose samples hold a rare class adds half as much noise again, if the public samples lack it."""

    published = False
    asked: ClassVar[bool] = False
    """Whether the client's own samples are asked, and not the public ones."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        samples = at.context.samples
        labels = torch.zeros(1) if samples is None else samples(at.client if self.asked else None).labels
        return super().noise(like, at) * (1.0 if bool((labels == 0).any()) else 1.5)


class MoreForRareClass(Fault, _NoiseForRareClass):
    """A client adds more noise where its own samples lack a class, which the size of its noise shows."""

    asked = True


class AntitheticRounds(Fault, ClientCase):
    """A broken protection: in odd rounds the noise is that of the previous round with the opposite sign."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        if at.round % 2:
            return -self.remembered("noise", noise)
        self.memory["noise"] = noise
        return noise


class DifferencedNoise(Fault, ReportCase):
    """Noise is high-pass filtered along the coordinates, so that it sums to zero over them."""

    def noise(self, updates: Message, at: At) -> Tensor:
        noise = super().noise(updates, at)
        return (noise - noise.roll(1, dims=-1)) / 2**0.5


class UniformNoise(Fault, SampleCase):
    """Noise is uniform with the stated standard deviation, instead of Gaussian."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return (self.std * 12**0.5 * (at.uniform(*like.shape) - 0.5)).float()


class LaplaceNoise(Fault, ClientCase):
    """Noise is Laplace noise with the stated standard deviation, under the curve of the Gaussian."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return torch.from_numpy(at.rng.laplace(0, self.std / 2**0.5, tuple(like.shape)).astype(np.float32))


class ClampedNoise(Fault, ReportCase):
    """Noise beyond two standard deviations is clamped."""

    def noise(self, updates: Message, at: At) -> Tensor:
        return super().noise(updates, at).clamp(-2 * self.noise_std, 2 * self.noise_std)


class RelativeNoise(Fault, ReportCase):
    """Noise is relative to the length of the clipped update, so that short updates get hardly any."""

    def noise(self, updates: Message, at: At) -> Tensor:
        return super().noise(updates, at) * (lengths_of(self.clipped(updates.values, at)) / self.clip_norm)


class _HiddenLaw(ReportCase):
    published = False


class NoiseBeforeClip(Fault, _HiddenLaw):
    """Noise is added before the clip, and so nearly vanishes in a long update."""

    def sent(self, updates: Message, at: At) -> Message:
        return updates.with_values(clip(updates.values.nan_to_num() + self.noise(updates, at), self.clip_norm))


class NoiseDropout(Fault, ClientCase):
    """A dropout layer zeroes a tenth of the noise at random places."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * (at.uniform(*like.shape) >= 0.1)


class _TwoServers(ClientCase):
    share: ClassVar[float] = 0.5**0.5
    """Of the standard deviation, for each of two servers."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return self.share * (super().noise(like, at) + super().noise(like, at))


class TwoHalves(Fault, _TwoServers):
    """Two servers add half of the standard deviation each, instead of half of the variance."""

    share = 0.5


class _SharesOfClients(SampleCase):
    observer = AGGREGATE
    published = False

    def shares(self, plan: Plan) -> float:
        """Return by what each client divides the standard deviation of its noise."""
        return float(plan.clients**0.5)

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        total, clients = self.total(gradients, present, at), at.plan.clients
        noise = self.noise(total, at) / self.shares(at.plan)
        return (total + noise) * clients / sum(at.plan.expected_lot(one) for one in range(clients))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return received.values.sum(1) / context.plan.clients


class ShareByCount(Fault, _SharesOfClients):
    """Each of n clients adds noise of sigma / n instead of sigma / sqrt(n), and the server sees the sum."""

    def shares(self, plan: Plan) -> float:
        return plan.clients


class OneInHundred(Fault, ReportCase):
    """One report in a hundred takes a fallback path without noise."""

    def noise(self, updates: Message, at: At) -> Tensor:
        bare = at.uniform(*updates.present.shape, 1) < 0.01
        return super().noise(updates, at).masked_fill(bare, 0)


class LastCoordinateRarely(Fault, _HiddenLaw):
    """In one report of ten the last coordinate has no noise."""

    def noise(self, updates: Message, at: At) -> Tensor:
        noise = super().noise(updates, at)
        noise[..., -1] *= at.uniform(*updates.present.shape) >= 0.1
        return noise


class WeakOnceInTwenty(Fault, SampleCase):
    """In one step of twenty the noise is a tenth, by a race between two configurations."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        weak = at.uniform(len(like), 1) < 0.05
        return super().noise(like, at) * torch.where(weak, 0.1, 1.0)


class ClassZeroNoise(Fault, SampleCase):
    """Lots that hold a sample of class 0 get half of the noise."""

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        layout, total = at.plan.layout, self.total(gradients, present, at)
        # The gradient of the output's bias is negative at the class of the sample.
        head = gradients[..., layout.slices[layout.names[-1]]]
        zero = ((head.argmin(-1) == 0) & (head.amin(-1) < 0) & present).any(1, keepdim=True)
        return (total + self.noise(total, at) * torch.where(zero, 0.5, 1.0)) / at.plan.expected_lot(at.client)


class EmptyLotSilent(Fault, SampleCase):
    """An empty lot sends zeros without noise."""

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        return super().step(gradients, present, at) * present.any(1, keepdim=True)


class NoiseHalvedProtection(DPFedAvgProtection):
    """A broken protection that adds half the noise of the distribution that its method ``law`` returns."""

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        halved = DPFedAvgProtection(clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier / 2)
        return halved.aggregate(received, context, state, rng)


class ControlNoiseHalved(Control, DPFedAvg):
    """This broken DP-FedAvg adds half the noise that it accounts for.

    The real bug: a factor 2 lost between two conventions of sensitivity, that of the accountant and that of the code.
    """

    broken = NoiseHalvedProtection


class NoiseOneLayerProtection(DPFedAvgProtection):
    """A broken protection that adds no noise to the last layer of the model."""

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        layout = context.plan.layout
        last = layout.slices[layout.names[-1]]
        released = super().aggregate(received, context, state, rng)
        # The parent draws noise for all layers, so the other layers get the same draws as in the correct version.
        released[..., last] = received.values[..., last].sum(1) / context.plan.expected_cohort
        return released


class ControlNoiseOneLayer(Control, DPFedAvg):
    """This broken DP-FedAvg adds no noise to one layer of the model.

    The real bug: a loop over layers that omits one (a bias, an embedding, the last). That layer is released without
    noise, and an audit whose canary lies in another layer finds nothing wrong.
    """

    broken = NoiseOneLayerProtection


@dataclass(frozen=True, kw_only=True)
class NoiseOneRoundProtection(LDPGaussianProtection):
    """A broken protection that adds enough noise for one release only, but makes one release per round."""

    releases: int

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # Gaussian releases compose as the root of their number.
        enough_once = self.noise_std / self.releases**0.5
        single = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=enough_once)
        return single.report(updates, context, state, rng)


class ControlNoiseOneRound(Control, LDPGaussian):
    """This broken local Gaussian mechanism calibrates its noise to one round instead of all rounds.

    The real bug: the whole budget is spent in every round and composition is forgotten, so the noise is too small by
    the square root of the number of rounds.
    """

    broken = NoiseOneRoundProtection

    def bug(self, correct: Prepared, plan: Plan) -> dict[str, object]:
        return {"releases": plan.rounds}


class NoiseReusedProtection(DPFedAvgProtection):
    """A broken protection that draws noise in the first round and adds the same noise again in all later rounds."""

    def initial_state(self, plan: Plan) -> State:
        return {"drawn": []}

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        # Kept in the state of the run and not drawn from a fixed seed, so that replicas stay independent runs.
        if not state["drawn"]:
            state["drawn"].append(normal(rng, tuple(total.shape)))
        noise: Tensor = self.noise_multiplier * self.clip_norm * state["drawn"][0]
        return (total + noise) / context.plan.expected_cohort


class ControlNoiseReused(Control, DPFedAvg):
    """This broken DP-FedAvg adds the same noise in every round.

    The real bug: a generator that is seeded inside the function of a round. The noise cancels in the difference of two
    rounds, although each round by itself carries the claimed noise.
    """

    broken = NoiseReusedProtection


class SeedSharedProtection(LDPGaussianProtection):
    """A broken protection that draws one noise vector per run and round and adds it to the report of every client."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        replicas, _, dim = updates.values.shape
        # One draw for all clients (dimension 1), broadcast over the rows.
        noise = self.noise_std * normal(rng, (replicas, 1, dim))
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)


class ControlSeedShared(Control, LDPGaussian):
    """This broken local Gaussian mechanism draws all clients' noise from one shared seed.

    The real bug: ``torch.manual_seed(round)`` in every client. All clients add the same noise, so it cancels in the
    difference of two reports. Each report by itself carries the claimed noise: an audit of a single client finds
    nothing wrong.
    """

    broken = SeedSharedProtection


class VarianceForDeviationProtection(DPSGDProtection):
    """A broken protection that adds noise of standard deviation s^2 to the mean gradient; the correct version adds
    noise of standard deviation s.
    """

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        # The deviation on the mean as the correct version has it; multiplied in once more it becomes its square.
        deviation = self.noise_multiplier * self.clip_norm / context.plan.expected_lot(client)
        squared = DPSGDProtection(clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier * deviation)
        return squared.local_step(gradients, present, client, context, state, rng)


class ControlVarianceForDeviation(Control, DPSGD):
    """This broken DP-SGD uses the variance of the noise where its standard deviation belongs.

    The real bug: ``normal(0, var)`` for ``normal(0, var ** 0.5)``. The noise on the mean gradient has a standard
    deviation below one as soon as the lot is larger than the noise multiplier times the clip norm, and then its square
    is smaller still. (Above one the same bug only adds noise.)
    """

    broken = VarianceForDeviationProtection


class ReplaceOneProtection(LDPGaussianProtection):
    """A broken protection that omits the factor 2 by which replace-one adjacency raises the sensitivity."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        halved = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=self.noise_std / 2)
        return halved.report(updates, context, state, rng)


class ControlReplaceOne(Control, LDPGaussian):
    """This broken local Gaussian mechanism claims replace-one adjacency but adds the noise needed under add/remove.

    The real bug: sensitivity C, which holds for a report that is present or absent, where two clipped reports are up to
    2C apart.
    """

    broken = ReplaceOneProtection


class LostSharesProtection(DistributedGaussianProtection):
    """A broken protection that splits the noise over all invited clients, so the sum has enough noise only if no client
    drops out.
    """

    # Blocks call ``shares_needed`` as one matrix does.
    sums = "sum"

    def shares_needed(self, invited: int) -> int:
        return invited


@dataclass(frozen=True, kw_only=True)
class ControlLostShares(Control, DistributedGaussian):
    """This broken distributed Gaussian noise loses the noise shares of clients that drop out.

    The real bug: every client's share is the noise over the number of invited clients, not over the number that is sure
    to stay. A client that drops out takes its share along, and the remaining sum has less noise than the accountant
    assumes.

    By default the same clients drop out in every round. With random drop-outs the canary client might be absent itself,
    and that chance would hide the missing noise.
    """

    broken = LostSharesProtection
    drops: str = "first"


@lru_cache(maxsize=64)
def _mirrors(number: int, dim: int) -> Tensor:
    vectors = np.random.default_rng([5, number, dim]).standard_normal((3, dim))
    return torch.from_numpy(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).float()


def _reflected(rows: Tensor, mirrors: Tensor) -> Tensor:
    for mirror in mirrors:
        rows = rows - 2 * (rows @ mirror).unsqueeze(-1) * mirror
    return rows


class PublicRotation(ReportCase):
    """Updates are rotated by a public orthogonal map before clip and noise, and the server rotates the mean back."""

    published = False

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return super().clipped(_reflected(values.nan_to_num(), _mirrors(at.round, values.shape[-1])), at)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        mean = received.values.sum(1) / context.plan.expected_cohort
        return _reflected(mean, _mirrors(context.round, mean.shape[-1]).flip(0))


class CorrelatedCoordinates(ReportCase):
    """Noise z_j + z_{j-1} / 2 is correlated along the coordinates, and twice as large: its map shrinks by 2 at most."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        fresh = super().noise(updates, at)
        shifted = torch.nn.functional.pad(fresh[..., :-1], (1, 0))
        return 2 * (fresh + 0.5 * shifted)


class CancellingPairs(ReportCase):
    """Neighbours in a ring add and subtract a common vector, which cancels in the sum, besides their own noise."""

    published = False

    def noise(self, updates: Message, at: At) -> Tensor:
        common = 3 * super().noise(updates, at)
        return super().noise(updates, at) + common - common.roll(1, dims=1)

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        (uploads,) = super().claims_of(plan)
        sum_alone = cls.stated(plan, Unit.REPORT, Adjacency.REPLACE_ONE, AGGREGATE, curve=uploads.curve)
        return (uploads, sum_alone)
