"""Clip what passive parties send, and add noise to it; clip and noise the updates of bottom models that are trained."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....fl.streams import normal
from ....fl.vertical.protection import Noise, VerticalContext, VerticalPlan, VerticalProtection
from ..defense import clipped, drawn


@dataclass(frozen=True, kw_only=True)
class NoisedEmbeddingProtection(VerticalProtection):
    """A protection in which passive parties send clipped embeddings with noise, for new people as well.

    Args:
        noise: Gaussian noise goes with an L2 clip, Laplace noise with an L1 clip.
        scale: of each number: the standard deviation of Gaussian, the scale of Laplace noise.
        clip_norm: bound of an embedding.
        bottom_clip: L2 bound of a person's gradient by a bottom model's parameters; None: these are not changed.
        bottom_std: standard deviation of the noise on each number of the sum of such gradients.
    """

    noise: Noise
    scale: float
    clip_norm: float
    sends_once: bool = False
    bottom_clip: float | None = None
    bottom_std: float = 0.0

    def embeddings(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return self.noised(values, rng)

    def evaluated(self, values: Tensor, party: int, plan: VerticalPlan, rng: np.random.Generator) -> Tensor:
        return self.noised(values, rng)

    def noised(self, values: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the clipped embeddings ``(R, n, d)`` with fresh noise."""
        return clipped(values, self.clip_norm, self.noise) + drawn(self.noise, self.scale, tuple(values.shape), rng)

    def bottom_weights(self, norms: Tensor, party: int, context: VerticalContext) -> Tensor | None:
        if self.bottom_clip is None:
            return None
        # A gradient that overflowed, or is no number, is left out: it would show its person in the whole sum.
        return torch.where(norms.isfinite(), self.bottom_clip / norms.clamp_min(self.bottom_clip), 0.0)

    def bottom_sum(self, total: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        if self.bottom_clip is None:
            return total
        return total + self.bottom_std * normal(rng, tuple(total.shape))


def embedding_releases(plan: VerticalPlan, *, sends_once: bool) -> int:
    """Return how often a passive party sends a person's embedding: once per epoch, or once.

    Raises:
        ValueError: if it is to be sent once by parties whose bottom models are trained.
    """
    if sends_once and not plan.frozen:
        raise ValueError(
            "embeddings can be sent once only if the bottom models are not trained: set frozen = true in the plan, or "
            "sends_once = false"
        )
    return 1 if sends_once else plan.epochs


def check_frozen(plan: VerticalPlan, advice: str = "") -> None:
    """Raise ValueError if the bottom models are trained, because their training uses the columns without noise, so that
    one person's columns would change what is sent about all people in later steps.
    """
    if not plan.frozen:
        raise ValueError(
            "bottom models must not be trained (frozen = true in the plan), because models trained on raw columns "
            f"reveal one person's columns in messages about all others, got frozen = false{advice}"
        )
