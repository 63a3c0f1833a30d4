"""Control: DP-FedAvg that adds the same noise in every round.

The real bug: a generator seeded inside the round's function. What two rounds release differs by no noise at all. Each
round by itself is noised as claimed.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from ..defense import Prepared, broken


@dataclass(frozen=True, kw_only=True)
class NoiseReusedProtection(DPFedAvgProtection):
    """Publishes the law of its correct twin; the first round's draw serves for all."""

    def initial_state(self, plan: Plan) -> State:
        return {"drawn": []}

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        # Kept in the run's state, not drawn from a seed of its own: replicas stay independent trials.
        if not state["drawn"]:
            state["drawn"].append(normal(rng, tuple(total.shape)))
        noise: Tensor = self.noise_multiplier * self.clip_norm * state["drawn"][0]
        return (total + noise) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class ControlNoiseReused(DPFedAvg):
    """Signs the claim of DP-FedAvg and does not keep it: a probe must break it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), NoiseReusedProtection)
