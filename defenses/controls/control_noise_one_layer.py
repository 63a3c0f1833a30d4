"""This broken DP-FedAvg adds no noise to one layer of the model.

The real bug: a loop over layers that omits one (a bias, an embedding, the last). That layer is released without noise,
and an audit whose canary lies in another layer finds nothing wrong.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.message import Message
from ...fl.protection import Context, Protection, State
from ..client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class NoiseOneLayerProtection(DPFedAvgProtection):
    """A broken protection that adds no noise to the last layer of the model."""

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        layout = context.plan.layout
        last = layout.slices[layout.names[-1]]
        released = super().aggregate(received, context, state, rng)
        # The parent draws noise for all layers, so the other layers get the same draws as in the correct version.
        released[..., last] = received.values[..., last].sum(1) / context.plan.expected_cohort
        return released


@dataclass(frozen=True, kw_only=True)
class ControlNoiseOneLayer(Control, DPFedAvg):
    """A deliberately broken defense (control) that states the claim of DP-FedAvg but violates it, so an implementation
    check must fail.
    """

    broken: ClassVar[type[Protection]] = NoiseOneLayerProtection
