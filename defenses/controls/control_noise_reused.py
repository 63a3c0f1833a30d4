"""This broken DP-FedAvg adds the same noise in every round.

The real bug: a generator that is seeded inside the function of a round. The noise cancels in the difference of two
rounds, although each round by itself carries the claimed noise.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class NoiseReusedProtection(DPFedAvgProtection):
    """A broken protection that draws noise in the first round and adds the same noise again in all later rounds."""

    def initial_state(self, plan: Plan) -> State:
        return {"drawn": []}

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        # Kept in the state of the run and not drawn from a fixed seed, so that replicas stay independent runs.
        if not state["drawn"]:
            state["drawn"].append(normal(rng, tuple(total.shape)))
        noise: Tensor = self.noise_multiplier * self.clip_norm * state["drawn"][0]
        return (total + noise) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class ControlNoiseReused(Control, DPFedAvg):
    """A deliberately broken defense (control) that states the claim of DP-FedAvg but violates it, so an implementation
    check must fail.
    """

    broken: ClassVar[type[Protection]] = NoiseReusedProtection
