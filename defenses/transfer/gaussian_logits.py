"""Every teacher clips its logits and adds Gaussian noise (local DP for federated distillation, as in FedMD)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...fl.laws import clip
from ...fl.protection import State
from ...fl.streams import normal
from ...fl.transfer.protection import TransferContext, TransferProtection
from ...fl.transfer.task import TransferPlan
from ..accounting.accountant import ANALYTIC_GAUSSIAN
from ..accounting.gaussian import gaussian_curve, gaussian_noise
from ..defense import Bound
from .defense import BudgetedTransfer, PreparedTransfer


@dataclass(frozen=True, kw_only=True)
class NoisyLogits(TransferProtection):
    """A protection in which each teacher sends its centred and clipped logits plus noise N(0, noise_std^2 I)."""

    clip_norm: float
    noise_std: float

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        # A number added to all logits changes no probability and would only use up the clip bound.
        centred = logits - logits.mean(-1, keepdim=True)
        return clip(centred, self.clip_norm) + self.noise_std * normal(rng, tuple(logits.shape))


@dataclass(frozen=True, kw_only=True)
class GaussianLogits(BudgetedTransfer):
    """A defense that needs no trusted aggregator: a teacher sends noisy logits, and the label of the largest mean is
    released.

    The logits of one query are clipped to an L2 norm; those of any two teachers are up to **twice** as far apart, in
    each of the queries.

    Args:
        epsilon, delta: budget of one teacher's answers to all queries, calibrated by the analytic Gaussian.
        clip_norm: L2 bound of the logits of one query, less their mean.
    """

    clip_norm: Bound = 1.0

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        noise = gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=plan.queries)
        protection = NoisyLogits(clip_norm=self.clip_norm, noise_std=noise * 2 * self.clip_norm)
        claim = self.answer_claim(
            mechanism="Gaussian noise on clipped logits",
            parameters={
                "noise_std": protection.noise_std,
                "clip_norm": self.clip_norm,
                "queries": plan.queries,
            },
            accountant=ANALYTIC_GAUSSIAN,
            source="Balle and Wang 2018, Theorem 8; exchange of logits: Li and Wang 2019 (FedMD)",
            curve=gaussian_curve(noise=noise, releases=plan.queries),
        )
        return PreparedTransfer(protection=protection, claims=(claim,))
