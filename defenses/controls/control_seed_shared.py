"""Control: local Gaussian noise from one seed for all clients.

The real bug: ``torch.manual_seed(round)`` in every client. All add the same noise, so the difference of two reports
carries none. Each report by itself is noised as claimed: who looks at one client only sees nothing wrong.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.laws.law import clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..defense import Prepared, broken
from ..local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection


@dataclass(frozen=True, kw_only=True)
class SeedSharedProtection(LDPGaussianProtection):
    """Publishes the law of its correct twin; one noise vector a replica and round, in everybody's report."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        replicas, _, dim = updates.values.shape
        noise = self.noise_std * normal(rng, (replicas, 1, dim))
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)


@dataclass(frozen=True, kw_only=True)
class ControlSeedShared(LDPGaussian):
    """Signs the claim of local DP and does not keep it: a probe must break it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), SeedSharedProtection)
