"""Control: replace-one local DP with the noise of add/remove.

The real bug: sensitivity C, that of a report that is there or not, where two clipped reports are up to 2C apart.
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
class ReplaceOneProtection(LDPGaussianProtection):
    """Publishes the law of its correct twin; the factor 2 is missing in the noise."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        halved = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=self.noise_std / 2)
        return halved.report(updates, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlReplaceOne(LDPGaussian):
    """Signs the claim of local DP and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), ReplaceOneProtection)
