"""Control: local Gaussian noise calibrated to one of all rounds.

The real bug: the whole budget spent in every round, composition forgotten (noise short by the root of the rounds).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..defense import Prepared, broken
from ..local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection


@dataclass(frozen=True, kw_only=True)
class NoiseOneRoundProtection(LDPGaussianProtection):
    """Publishes the law of its correct twin and adds what would do for one of its ``releases``."""

    releases: int

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        enough_once = self.noise_std / self.releases**0.5
        single = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=enough_once)
        return single.report(updates, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlNoiseOneRound(LDPGaussian):
    """Signs the claim of local DP and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), NoiseOneRoundProtection, releases=plan.rounds)
