"""DP-SGD clips per-sample gradients at each client and adds noise to their sum (Abadi et al. 2016, Algorithm 1)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Unit
from ...audit.observer import UPLOADS, Observer
from ...fl.laws import GaussianLaw, clipped_sum
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..clipped.claims import ClippedDefense
from ..defense import Prepared


@dataclass(frozen=True, kw_only=True)
class DPSGDProtection(Protection):
    """A protection whose step direction is (sum of clipped gradients + N(0, (noise_multiplier * clip_norm)^2 I)) /
    expected batch size.
    """

    clip_norm: float
    noise_multiplier: float
    per_sample: bool = True

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        return self.noised_sum(self.total(gradients, present), client, context, state, rng)

    def sample_weights(self, norms: Tensor, client: int, context: Context, state: State) -> Tensor:
        """Return the factor by which each sample's gradient is clipped, ``(m,)``, given its norms by parameter."""
        weights: Tensor = self.clip_norm / torch.linalg.vector_norm(norms, dim=1).clamp_min(self.clip_norm)
        return weights

    def noised_sum(
        self, total: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Return the direction of one local step from the sum of clipped gradients ``(R, d)``."""
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(total.shape))
        # The expected lot is public; the actual size would reveal who was drawn.
        return (total + noise) / context.plan.expected_lot(client)

    def total(self, gradients: Tensor, present: Tensor) -> Tensor:
        """Return the sum of each batch's gradients, shape ``(R, d)`` for R runs; each gradient is first clipped to norm
        ``clip_norm``.
        """
        return clipped_sum(gradients, present, self.clip_norm)

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """Return the distribution of the update that a client sends; return None if the update is not linear in the
        noised steps (Adam), or if the observer receives only sums of updates.
        """
        linear, steps = plan.algorithm.linear_scale, plan.algorithm.local_steps
        if linear is None or observer.rank < UPLOADS.rank:
            return None
        scale = linear / plan.expected_lot(client)
        return GaussianLaw(
            clip_norm=self.clip_norm,
            scale=scale,
            # The noise of the local steps adds up in one upload: variances add, so the deviation grows as the root.
            noise_std=abs(scale) * self.noise_multiplier * self.clip_norm * steps**0.5,
            rate=plan.lot.rate(round(plan.weight(client))),
            steps=steps,
        )


class DPSGD(ClippedDefense):
    """A defense for sample-level DP that runs DP-SGD at each client.

    The claim: one sample of a client, add/remove, over all local steps of a client that takes part in every round; with
    lots of fixed size replace-one, in which a sample moves a sum by two clip norms. The adversary is the server, which
    observes individual updates; it sees who takes part, so there is no amplification by client sampling.

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution.
        clip_norm: L2 bound of a sample's gradient.

    Raises (in prepare):
        ValueError: if lots are neither Poisson samples, nor of fixed size, nor all samples.
    """

    def prepare(self, plan: Plan) -> Prepared:
        mechanism = self.calibrated(plan, Unit.SAMPLE)
        protection = DPSGDProtection(clip_norm=self.clip_norm, noise_multiplier=mechanism.sigma)
        return self.stated(plan, mechanism, protection, Unit.SAMPLE, source="Abadi et al. 2016, Algorithm 1")
