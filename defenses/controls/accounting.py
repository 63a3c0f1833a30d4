"""Faults of accounting: the mechanism is as intended, and its noise is computed from a wrong cost."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Unit
from ...fl.laws import clip, clipped_sum
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..accounting.gaussian import calibrate_sampled_gaussian
from .case import At, ClientCase, Fault, ReportCase, SampleCase, lengths_of


class VisibleCohort(Fault, ReportCase):
    """Amplification by sampling clients is counted against a server that sees who sends."""

    sampled = Unit.CLIENT
    curve = False

    @classmethod
    def bug(cls, plan: Plan) -> dict[str, object]:
        steps = {"rate": plan.cohort_rate, "steps": plan.rounds}
        sigma = calibrate_sampled_gaussian(epsilon=cls.epsilon, delta=cls.delta, **steps).sigma
        return {"noise_std": 2 * cls.clip_norm * sigma}


class ConversionForgotten(Fault, ReportCase):
    """The parameter rho of zCDP is set to epsilon, without the term 2 sqrt(rho ln(1 / delta))."""

    curve = False

    @classmethod
    def bug(cls, plan: Plan) -> dict[str, object]:
        return {"noise_std": 2 * cls.clip_norm * (plan.participations / (2 * cls.epsilon)) ** 0.5}


class OneRoundOnly(Fault, ClientCase):
    """Noise is calibrated to one round, and the claim covers all of them."""

    @classmethod
    def bug(cls, plan: Plan) -> dict[str, object]:
        once = {"rate": cls.needed(plan).rate, "steps": 1}
        return {"noise_multiplier": calibrate_sampled_gaussian(epsilon=cls.epsilon, delta=cls.delta, **once).sigma}


class DividedTwice(Fault, ClientCase):
    """Noise is sized for the mean, but added to the sum, which is then divided by the number of clients."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) / self.divisor(at.plan)


class RedrawUntilUseful(Fault, ClientCase):
    """Noise is drawn anew until the noised sum points along the raw sum."""

    def noise(self, like: Tensor, at: At) -> Tensor:
        noise = super().noise(like, at)
        for _ in range(6):
            against = ((noise + like) * like).sum(-1, keepdim=True) < 0
            noise = torch.where(against, super().noise(like, at), noise)
        return noise


class _QuantilePaid(ClientCase):
    """The clip norm follows a noised count of short updates, which has a share of the budget."""

    published = False
    count_share: ClassVar[float] = 1 / 16
    """Of the budget of one round, the count's share; sum and count are one Gaussian release."""

    @property
    def joint(self) -> float:
        """How much larger the noise of the sum is because of the count."""
        return float((1 - self.count_share) ** -0.5)

    @property
    def count_std(self) -> float:
        """The standard deviation of the noise of the count, which one client moves by one half."""
        return float(self.noise_multiplier / (2 * self.count_share**0.5))

    def initial_state(self, plan: Plan) -> State:
        return {"clip_norm": torch.tensor([self.clip_norm])}

    def sent(self, updates: Message, at: At) -> Message:
        bound = at.state["clip_norm"].view(-1, 1, 1)
        short = lengths_of(updates.values) <= bound
        sent = updates.with_values(clip(updates.values, bound))
        return replace(sent, side={"short": short.squeeze(-1) & updates.present})

    def noise(self, like: Tensor, at: At) -> Tensor:
        bound: Tensor = at.state["clip_norm"].view(-1, 1)
        return self.joint * self.noise_multiplier * bound * at.normal(like)

    def query(
        self, received: Message, context: Context, state: State, rng: np.random.Generator
    ) -> Mapping[str, Tensor]:
        halves = ((received.side["short"].float() - 0.5) * received.present).sum(1)
        noise = self.count_std * normal(rng, tuple(halves.shape))
        share = 0.5 + (halves + noise) / self.divisor(context.plan)
        return {"clip_norm": (state["clip_norm"] * torch.exp(-0.2 * (share - 0.5))).clamp(1e-3, 1e3)}


class QuantileUnpaid(Fault, _QuantilePaid):
    """The count that adapts the clip norm has noise of .05, which no accountant counts."""

    joint = 1.0
    count_std = 0.05


class AdaptiveClientClip(_QuantilePaid):
    """The clip norm follows a noised count of short updates, which takes half of the budget."""

    count_share = 0.5


class _HiddenLaw(SampleCase):
    published = False


class ChosenClip(Fault, _HiddenLaw):
    """Of three clip norms, each with its noise, one is chosen by the largest raw gradient of the lot, unpaid."""

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        rows = gradients.nan_to_num().clamp(-1e6, 1e6)
        longest = lengths_of(rows).squeeze(-1).masked_fill(~present, 0).amax(1, keepdim=True)
        factor = torch.where(longest > self.clip_norm, 1.0, 0.25)
        self.memory["factor"] = torch.where(longest > 4 * self.clip_norm, 4.0, factor)
        return clipped_sum(rows, present, self.clip_norm * self.memory["factor"].unsqueeze(-1))

    def noise(self, like: Tensor, at: At) -> Tensor:
        return super().noise(like, at) * self.memory["factor"]
