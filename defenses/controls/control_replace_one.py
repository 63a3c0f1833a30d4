"""Control: local DP under replace-one with the noise of add/remove.

The real bug: sensitivity C, which holds for a report that is present or absent, where two clipped reports are up to 2C
apart.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.message import Message
from ...fl.protection import Context, Protection, State
from ..local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class ReplaceOneProtection(LDPGaussianProtection):
    """Adds noise without the factor 2 of replace-one."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        halved = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=self.noise_std / 2)
        return halved.report(updates, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlReplaceOne(Control, LDPGaussian):
    """States the claim of local DP and does not satisfy it: an audit must refute it."""

    broken: ClassVar[type[Protection]] = ReplaceOneProtection
