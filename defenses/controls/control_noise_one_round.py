"""This broken local Gaussian mechanism calibrates its noise to one round instead of all rounds.

The real bug: the whole budget is spent in every round and composition is forgotten, so the noise is too small by the
square root of the number of rounds.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ..local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class NoiseOneRoundProtection(LDPGaussianProtection):
    """A broken protection that adds enough noise for one release only, but makes one release per round."""

    releases: int

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # Gaussian releases compose as the root of their number.
        enough_once = self.noise_std / self.releases**0.5
        single = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=enough_once)
        return single.report(updates, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlNoiseOneRound(Control, LDPGaussian):
    """A deliberately broken defense (control) that states a local DP claim but violates it, so an audit must
    refute it.
    """

    broken: ClassVar[type[Protection]] = NoiseOneRoundProtection

    def bug(self, plan: Plan) -> dict[str, object]:
        return {"releases": plan.rounds}
