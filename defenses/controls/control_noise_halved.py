"""This broken DP-FedAvg adds half the noise that it accounts for.

The real bug: a factor 2 lost between two conventions of sensitivity, that of the accountant and that of the code.
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
class NoiseHalvedProtection(DPFedAvgProtection):
    """A broken protection that adds half the noise of the distribution that its method ``law`` returns."""

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        halved = DPFedAvgProtection(clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier / 2)
        return halved.aggregate(received, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlNoiseHalved(Control, DPFedAvg):
    """A deliberately broken defense (control) that states the claim of DP-FedAvg but violates it, so an audit must
    refute it.
    """

    broken: ClassVar[type[Protection]] = NoiseHalvedProtection
