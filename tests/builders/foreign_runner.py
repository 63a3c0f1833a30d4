"""A made-up system of Gaussian releases on Poisson lots, as a runner; its noise or its clip can be broken."""

from dataclasses import dataclass

import numpy as np
import torch
from fedassay.adapters.recording import Recording, Release
from fedassay.defenses.accounting.stated_laws import claim_from_noise
from fedassay.fl.laws.law import GaussianLaw
from fedassay.fl.layout import Layout

LAYOUT = Layout(names=("weight",), shapes=((6,),))
NOISE, RATE, STEPS = 1.0, 0.3, 5


@dataclass(frozen=True)
class GaussianRunner:
    """``share`` of the noise is added; a row is clipped to ``clip`` norms, 0 loses it; ``fails``: digit of seeds."""

    share: float = 1.0
    clip: float = 1.0
    fails: int = -1
    replayable: bool = True

    @property
    def claim(self):
        return claim_from_noise(NOISE, delta=1e-5, sampling_rate=RATE, steps=STEPS)

    @property
    def law(self):
        return GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=NOISE, rate=RATE)

    def run(self, member=False, seed=0, *, noise=0, plant=None):
        rng = np.random.default_rng(seed)
        if self.fails >= 0 and seed % 10 == self.fails:
            raise RuntimeError("out of memory")
        direction = torch.zeros(6, dtype=torch.float64) if plant is None else plant.direction(LAYOUT)
        length = 0.0 if plant is None else min(plant.weight, self.clip) * member
        releases = []
        for step in range(STEPS):
            rest = torch.from_numpy(rng.standard_normal(6))
            total = rest + length * (rng.random() < RATE) * direction
            released = total + self.share * NOISE * torch.from_numpy(rng.standard_normal(6))
            releases.append(
                Release(step=step, released=released, received=total, rest=rest, clip_norm=1.0, noise_multiplier=NOISE)
            )
        return Recording(layout=LAYOUT, releases=tuple(releases))
