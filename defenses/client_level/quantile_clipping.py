"""Quantile clipping is DP-FedAvg with a clip norm that tracks a quantile of the update norms (Andrew et al. 2021)."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Unit
from ...fl.fields import Positive, check_positive
from ...fl.laws import clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..clipped.claims import ClippedDefense
from ..defense import Prepared, Share

# Limits of the clip norm: noise must not drive it to 0, where no update would pass and the norms could no longer be
# learnt, or to infinity.
_BOUNDS = (1e-6, 1e6)
# Of the budget, what the default count may spend.
_LARGEST_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class QuantileClippingProtection(Protection):
    """A protection that runs DP-FedAvg with an adaptive clip norm: after each round, the clip norm is changed according
    to a noisy count of the updates that are shorter than it.

    Args:
        sum_noise: noise on the sum, in clip norms.
        count_noise: standard deviation of the noise on the count.
    """

    clip_norm: float
    sum_noise: float
    count_noise: float
    quantile: float
    learning_rate: float

    def initial_state(self, plan: Plan) -> State:
        return {"clip_norm": torch.tensor([self.clip_norm])}

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        bound, lengths = state["clip_norm"].unsqueeze(-1), torch.linalg.vector_norm(updates.values, dim=-1)
        # The count is of updates that the current bound leaves unclipped, so it is taken before clipping.
        short = updates.with_values(clip(updates.values, bound.unsqueeze(-1)))
        return replace(short, side={"unclipped": (lengths <= bound) & updates.present})

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        noise: Tensor = self.sum_noise * state["clip_norm"].unsqueeze(-1) * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_cohort

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        # A count of plus or minus a half per client has half the sensitivity of a count of ones (section 3.2).
        halves = (received.side["unclipped"].float() - 0.5) * received.present
        noise = self.count_noise * normal(rng, (len(halves),))
        share = 0.5 + (halves.sum(1) + noise) / context.plan.expected_cohort
        moved = state["clip_norm"] * torch.exp(-self.learning_rate * (share - self.quantile))
        return {"clip_norm": moved.clamp(*_BOUNDS)}


@dataclass(frozen=True, kw_only=True)
class QuantileClipping(ClippedDefense):
    """A defense for client-level DP in which a trusted server adapts the clip norm and broadcasts it together with the
    model.

    The claim: one client, add/remove. The adversary is another client, who sees every round's model and clip norm but
    not who else takes part. The sum and the count are one Gaussian release on one cohort: with ``z`` the noise
    multiplier that the accountant requires, the sum gets ``z_sum = (z^-2 - (2 count_noise)^-2)^-1/2`` (Theorem 1). No
    law is published, because clip norm and noise change with the state.

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution over the rounds.
        clip_norm: L2 bound of a client's update in the first round.
        quantile: target share of updates that the bound leaves unclipped.
        learning_rate: of the geometric step ``clip_norm * exp(-learning_rate * (noised share - quantile))``.
        count_noise: standard deviation on the count. None: the paper's twentieth of the expected cohort, or the noise
            for a tenth of the budget where that is more.

    Raises (in prepare):
        ValueError: if the count alone would spend the budget, or as ``DPFedAvg``.
    """

    quantile: Share = 0.5
    learning_rate: Positive = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count_noise is not None:
            check_positive("count_noise", self.count_noise)

    def prepare(self, plan: Plan) -> Prepared:
        mechanism = self.calibrated(plan, Unit.CLIENT)
        # A small cohort would make the twentieth so little noise that the count spent most of the budget.
        count_noise = self.count_noise or max(
            plan.expected_cohort / 20, mechanism.sigma / (2 * math.sqrt(_LARGEST_SHARE))
        )
        if 2 * count_noise <= mechanism.sigma:
            raise ValueError(
                f"count_noise must be > {mechanism.sigma / 2:.4g}, half of the noise multiplier for epsilon "
                f"{self.epsilon:g}, because otherwise the noisy count alone would spend the whole budget, got "
                f"{count_noise:g}"
            )
        protection = QuantileClippingProtection(
            clip_norm=self.clip_norm,
            sum_noise=(mechanism.sigma**-2 - (2 * count_noise) ** -2) ** -0.5,
            count_noise=count_noise,
            quantile=self.quantile,
            learning_rate=self.learning_rate,
        )
        return self.stated(
            plan,
            mechanism,
            protection,
            Unit.CLIENT,
            source="Andrew et al. 2021, Algorithm 1 and Theorem 1",
            words=", sum and count together",
            more={"sum_noise": protection.sum_noise, "count_noise": protection.count_noise},
        )
