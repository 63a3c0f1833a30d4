"""Control: DP-FedAvg that adds half the noise it accounts for.

The real bug: a factor 2 lost between the accountant's convention of sensitivity and the code's.
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
class NoiseHalvedProtection(DPFedAvgProtection):
    """Publishes the law of its correct twin and adds half its noise."""

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        halved = DPFedAvgProtection(clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier / 2)
        return halved.aggregate(received, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlNoiseHalved(DPFedAvg):
    """Signs the claim of DP-FedAvg and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), NoiseHalvedProtection)
