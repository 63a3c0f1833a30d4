"""This broken DP-FedAvg clips to the median of the clients' update norms, computed without noise.

The real bug: adaptive clipping (Andrew et al. 2021) without its noise. The clip norm is broadcast, so every client
reads a function of all updates that has no noise, and from the second round on one client moves the scale of the noise.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipRawProtection(DPFedAvgProtection):
    """A broken protection that clips to the exact median norm of the previous round; the noise distribution that its
    method ``law`` returns is right in the first round only.
    """

    def initial_state(self, plan: Plan) -> State:
        return {"clip_norm": torch.tensor(self.clip_norm), "medians": []}

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        bound, lengths = state["clip_norm"], torch.linalg.vector_norm(updates.values, dim=-1)
        # Absent clients have zero rows; counting them would pull the median to 0.
        median = lengths.masked_fill(~updates.present, torch.nan).nanmedian(1, keepdim=True).values
        state["medians"].append(torch.where(median.isnan(), bound, median.clamp_min(1e-6)))
        return updates.with_values(updates.values * (bound / torch.maximum(lengths, bound)).unsqueeze(-1))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        noise: Tensor = self.noise_multiplier * state["clip_norm"] * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_cohort

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"clip_norm": state["medians"][-1], "medians": []}


@dataclass(frozen=True, kw_only=True)
class ControlAdaptiveClipRaw(Control, DPFedAvg):
    """A deliberately broken defense (control) that states the claim of DP-FedAvg but violates it, so an implementation
    check must fail.
    """

    broken: ClassVar[type[Protection]] = AdaptiveClipRawProtection
