"""The real bugs of this family: noise is missing somewhere, correlated, of a wrong shape, or added at a wrong place."""

import numpy as np
import torch
from torch import Tensor

from ....audit.observer import AGGREGATE
from ....fl.laws.law import clip
from ....fl.message import Message
from ....fl.protection import Context, State
from ..case import At, ClientCase, ReportCase, SampleCase, layers_of, lengths_of


class LastCoordinateBare(SampleCase):
    """A slice that ends one too early leaves the last coordinate without noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        noise[..., -1] *= not self.broken
        return noise


class FirstCoordinatesQuarter(ClientCase):
    """The first four coordinates get a quarter of the noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        noise[..., :4] *= 0.25 if self.broken else 1.0
        return noise


class FirstClientWeak(SampleCase):
    """Client 0, a trusted reference site, adds half of its noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * (0.5 if self.broken and at.client == 0 else 1.0)


class AfterRoundThree(SampleCase):
    """From the fourth round on a schedule multiplies the noise by 0.1."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * (0.1 if self.broken and at.round >= 3 else 1.0)


class SharedAcrossLayers(SampleCase):
    """The generators of all layers get one seed, so that layers begin with the same noise."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise, layers = super().noise(like, at), layers_of(at.plan.layout)
        return torch.cat([noise[..., : part.stop - part.start] for part in layers], dim=-1) if self.broken else noise


class AntitheticRounds(ClientCase):
    """In odd rounds the noise is minus that of the round before."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        if self.broken and at.round % 2:
            return -self.remembered("noise", noise)
        self.memory["noise"] = noise
        return noise


class DifferencedNoise(ReportCase):
    """Noise is high-pass filtered along the coordinates, so that it sums to zero over them."""

    def noise(self, updates: Message, at: At) -> Tensor:
        noise = super().noise(updates, at)
        return (noise - noise.roll(1, dims=-1)) / 2**0.5 if self.broken else noise


class UniformNoise(SampleCase):
    """Noise is uniform with the stated standard deviation, instead of Gaussian."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        if not self.broken:
            return super().noise(like, at)
        return (self.std * 12**0.5 * (at.uniform(*like.shape) - 0.5)).float()


class LaplaceNoise(ClientCase):
    """Noise is Laplace noise with the stated standard deviation, under the curve of the Gaussian."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        if not self.broken:
            return super().noise(like, at)
        return torch.from_numpy(at.rng.laplace(0, self.std / 2**0.5, tuple(like.shape)).astype(np.float32))


class ClampedNoise(ReportCase):
    """Noise beyond two standard deviations is clamped."""

    def noise(self, updates: Message, at: At) -> Tensor:
        noise = super().noise(updates, at)
        return noise.clamp(-2 * self.noise_std, 2 * self.noise_std) if self.broken else noise


class RelativeNoise(ReportCase):
    """Noise is relative to the length of the clipped update, so that short updates get hardly any."""

    def noise(self, updates: Message, at: At) -> Tensor:
        lengths = lengths_of(self.clipped(updates.values, at))
        return super().noise(updates, at) * (lengths / self.clip_norm if self.broken else 1.0)


class NoiseBeforeClip(ReportCase):
    """Noise is added before the clip, and so nearly vanishes in a long update."""

    published = False

    def sent(self, updates: Message, at: At) -> Message:
        if not self.broken:
            return super().sent(updates, at)
        return updates.with_values(clip(updates.values.nan_to_num() + self.noise(updates, at), self.clip_norm))


class NoiseDropout(ClientCase):
    """A dropout layer zeroes a tenth of the noise at random places."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        return noise * (at.uniform(*like.shape) >= 0.1) if self.broken else noise


class TwoHalves(ClientCase):
    """Two servers add half of the standard deviation each, instead of half of the variance."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        share = 0.5 if self.broken else 0.5**0.5
        return share * (super().noise(like, at) + super().noise(like, at))


class ShareByCount(SampleCase):
    """Each of n clients adds noise of sigma / n instead of sigma / sqrt(n), and the server sees the sum."""

    observer = AGGREGATE
    published = False

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        total, clients = self.total(gradients, present, at), at.plan.clients
        noise = self.noise(total, at) / (clients if self.broken else clients**0.5)
        return (total + noise) * clients / sum(at.plan.expected_lot(one) for one in range(clients))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return received.values.sum(1) / context.plan.clients
