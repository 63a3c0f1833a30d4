"""Control: DP-FedAvg that leaves one layer without noise.

The real bug: a loop over layers that forgets one (a bias, an embedding, the last). The forgotten layer is released as
it is. An audit whose canary stands on another weight sees nothing wrong.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from ..defense import Prepared, broken


@dataclass(frozen=True, kw_only=True)
class NoiseOneLayerProtection(DPFedAvgProtection):
    """Publishes the law of its correct twin; the layout's last layer gets no noise."""

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        layout = context.plan.layout
        bare = layout.slices[layout.names[-1]]
        released = super().aggregate(received, context, state, rng)
        released[..., bare] = received.values[..., bare].sum(1) / context.plan.expected_cohort
        return released


@dataclass(frozen=True, kw_only=True)
class ControlNoiseOneLayer(DPFedAvg):
    """Signs the claim of DP-FedAvg and does not keep it: a probe must break it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), NoiseOneLayerProtection)
