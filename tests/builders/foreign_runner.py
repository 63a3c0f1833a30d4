"""A made-up system of Gaussian releases on Poisson lots, as a runner; its noise or its clip can be broken."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from fedassay.checks.training_record import Release, TrainingRecord
from fedassay.defenses.accounting.stated_laws import claim_from_accountant, claim_from_noise
from fedassay.fl.laws import GaussianLaw
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
    noises: ClassVar[tuple[float, ...]] = (NOISE,) * STEPS
    rates: ClassVar[tuple[float, ...]] = (RATE,) * STEPS

    @property
    def claim(self):
        return claim_from_noise(NOISE, delta=1e-5, sampling_rate=RATE, steps=STEPS)

    @property
    def law(self):
        return GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=NOISE, rate=RATE)

    def run(self, member=False, seed=0, *, plant=None):
        rng = np.random.default_rng(seed)
        if self.fails >= 0 and seed % 10 == self.fails:
            raise RuntimeError("out of memory")
        direction = torch.zeros(6, dtype=torch.float64) if plant is None else plant.direction(LAYOUT)
        length = 0.0 if plant is None else min(plant.weight, self.clip) * member
        releases = []
        for step, noise_std in enumerate(self.noises):
            rest = torch.from_numpy(rng.standard_normal(6))
            total = rest + length * (rng.random() < self.rates[step]) * direction
            released = total + self.share * noise_std * torch.from_numpy(rng.standard_normal(6))
            releases.append(
                Release(
                    step=step, released=released, received=total, rest=rest, clip_norm=1.0, noise_multiplier=noise_std
                )
            )
        return TrainingRecord(layout=LAYOUT, releases=tuple(releases))


@dataclass(frozen=True)
class ScheduledRunner(GaussianRunner):
    """Noise and rates that change from step to step; the ledger holds the first ``accounted`` ones."""

    accounted: int = STEPS
    noises: ClassVar[tuple[float, ...]] = (1.2, 1.1, 1.0, 0.9, 0.8)
    rates: ClassVar[tuple[float, ...]] = (0.2, 0.3, 0.3, 0.4, 0.5)
    law = None

    @property
    def history(self):
        return [(*each, 1) for each in zip(self.noises, self.rates, strict=True)]

    @property
    def claim(self):
        return claim_from_accountant(self, delta=1e-5)

    def run(self, member=False, seed=0, **options):
        recording = super().run(member, seed, **options)
        return replace(recording, ledger=tuple(self.history[: self.accounted]))
