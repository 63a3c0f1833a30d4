"""This broken local Gaussian mechanism draws all clients' noise from one shared seed.

The real bug: ``torch.manual_seed(round)`` in every client. All clients add the same noise, so it cancels in the
difference of two reports. Each report by itself carries the claimed noise: an audit of a single client finds nothing
wrong.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.laws.law import clip
from ...fl.message import Message
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class SeedSharedProtection(LDPGaussianProtection):
    """A broken protection that draws one noise vector per run and round and adds it to the report of every client."""

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        replicas, _, dim = updates.values.shape
        # One draw for all clients (dimension 1), broadcast over the rows.
        noise = self.noise_std * normal(rng, (replicas, 1, dim))
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)


@dataclass(frozen=True, kw_only=True)
class ControlSeedShared(Control, LDPGaussian):
    """A deliberately broken defense (control) that states a local DP claim but violates it, so an implementation check
    must fail.
    """

    broken: ClassVar[type[Protection]] = SeedSharedProtection
