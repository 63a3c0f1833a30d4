"""This broken local Gaussian mechanism claims replace-one adjacency but adds only the noise needed under add/remove.

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
    """A broken protection that omits the factor 2 by which replace-one adjacency raises the sensitivity."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        halved = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=self.noise_std / 2)
        return halved.report(updates, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlReplaceOne(Control, LDPGaussian):
    """A deliberately broken defense (control) that states a local DP claim but violates it, so an audit must
    refute it.
    """

    broken: ClassVar[type[Protection]] = ReplaceOneProtection
