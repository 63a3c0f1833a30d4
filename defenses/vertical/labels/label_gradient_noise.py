"""The active party adds noise to each person's gradient by the logits, before it computes anything else from it."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from ....audit.observer import PASSIVE_PARTY
from ....fl.vertical.protection import Noise, Noised, VerticalContext, VerticalLaw, VerticalPlan, VerticalProtection
from ...accounting.accountant import ANALYTIC_GAUSSIAN
from ...accounting.gaussian import gaussian_curve, gaussian_noise
from ...defense import Bound, DeltaOrZero, Variant, check_budget, provable
from ..defense import PureVerticalDefense, VerticalPrepared, clipped, drawn

ONE_LABEL = {Noise.GAUSSIAN: math.sqrt(2), Noise.LAPLACE: 2.0}
"""How far one label moves its person's gradient by the logits: in the L2 norm, and in the L1 norm."""
_NONE = (
    "the top model and the active party's own model are trained on raw labels, and later gradients depend on "
    "these models"
)


@dataclass(frozen=True, kw_only=True)
class ResidualNoiseProtection(VerticalProtection):
    """A protection that adds noise to the gradients of the people's losses with respect to their logits.

    Args:
        scale: of each number: the standard deviation of Gaussian, the scale of Laplace noise.
    """

    noise: Noise
    scale: float

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return values + drawn(self.noise, self.scale, tuple(values.shape), rng)


@dataclass(frozen=True, kw_only=True)
class GradientNoiseProtection(VerticalProtection):
    """A protection that clips the gradients that are sent to passive parties and adds noise to these gradients, and to
    nothing else.

    Args:
        scale: of each number: the standard deviation of Gaussian, the scale of Laplace noise.
        clip_norm: bound of a person's gradient, in the L2 norm for Gaussian, the L1 norm for Laplace noise.
    """

    noise: Noise
    scale: float
    clip_norm: float

    def gradients(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        sent = clipped(values, self.clip_norm, self.noise)
        return sent + drawn(self.noise, self.scale, tuple(values.shape), rng)


@dataclass(frozen=True, kw_only=True)
class LabelGradientNoise(PureVerticalDefense):
    """A defense for label DP by noise on the residuals, which are the gradients of each person's loss with respect to
    the logits.

    A residual is the vector of predicted probabilities minus the one-hot label. One label moves its own person's
    residual by sqrt 2 in the L2 norm (2 in the L1 norm) and no other residual of the step, and everything else, the
    active party's own update included, is computed from the noised residuals. So a label is released once per epoch,
    and all else is post-processing. Batches are public, so that sampling amplifies nothing.

    The claims: one person's label, over the whole training, against a passive party and against the public that
    receives the final models.

    Args:
        epsilon, delta: the budget of all epochs, by the analytic Gaussian, or by exact composition of Laplace releases.
        noise: "gaussian" or "laplace".
        variant: "corrected", or "as_published": noise on the gradients that are sent, after a clip, and a claim with
            the epsilon of one message about one person.
        clip_norm: bound of a person's gradient (as_published alone).

    Errata:
        - Not stated: survey of Fu et al. 2024, section 4.1 and table 3, what noise on the gradients that are sent
          protects. The rows of Yang et al. 2022 (Laplace, epsilon 1, delta 0) and Wang et al. 2020b (Gaussian) do not
          say whether the epsilon is that of a message or of a training, and whether the party with the labels trains
          its own models on noised gradients too. Reading 1: it does, and the budget is shared by all messages; then a
          claim about the training holds. The abstract of Yang et al. 2022 ("not only the model weights, but also the
          communicated messages") supports it. Reading 2: the noise is added to what is sent and to nothing else; then a
          message has its epsilon, but not a training: one label moves the top model, or the bias of the active party's
          own model, and through it the later gradients of all people, each of which shows the label again. In a
          federation of 200 people the gradients about the 199 others alone show epsilon 2.9 in one epoch, where a
          message has 1. The papers of the rows were not at hand, and neither is said to follow reading 2. Here: noise
          on the residuals, shared by all epochs; as_published is reading 2 with the epsilon of a message.
    """

    delta: DeltaOrZero = 1e-5
    noise: Literal["gaussian", "laplace"] = "gaussian"
    variant: Variant = "corrected"
    clip_norm: Bound = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise == "gaussian":
            check_budget(self.epsilon, self.delta)

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        return self._published(plan) if self.variant == "as_published" else self._corrected(plan)

    def _corrected(self, plan: VerticalPlan) -> VerticalPrepared:
        noise, factor = Noise(self.noise), self._factor(plan.epochs)
        scale = factor * ONE_LABEL[noise]
        gaussian = noise is Noise.GAUSSIAN
        return self.stated(
            plan,
            ResidualNoiseProtection(noise=noise, scale=scale),
            VerticalLaw(noised=Noised.RESIDUALS, noise=noise, scale=scale, releases=plan.epochs),
            mechanism=f"{noise.value} noise on the gradients by the logits",
            parameters={"scale": scale, "sensitivity": ONE_LABEL[noise], "releases": plan.epochs},
            accountant=ANALYTIC_GAUSSIAN if gaussian else self.accountant,
            source="Balle and Wang 2018, Theorem 8" if gaussian else "Dwork, McSherry, Nissim, Smith 2006, Theorem 1",
            curve=gaussian_curve(noise=factor, releases=plan.epochs) if gaussian else None,
            each=None if gaussian else 1 / factor,
        )

    def _published(self, plan: VerticalPlan) -> VerticalPrepared:
        noise = Noise(self.noise)
        scale = self._factor(1) * 2 * self.clip_norm
        # All gradients of a single step are sent before any model moves.
        shown = self.epsilon if plan.steps == 1 else math.inf
        law = VerticalLaw(noised=Noised.GRADIENTS, noise=noise, scale=scale, clip=self.clip_norm, releases=plan.epochs)
        return self.stated(
            plan,
            GradientNoiseProtection(noise=noise, scale=scale, clip_norm=self.clip_norm),
            law,
            mechanism=f"{noise.value} noise on the gradients that are sent",
            parameters={"scale": scale, "clip_norm": self.clip_norm, **provable(shown, else_none=_NONE)},
            accountant="one message",
            source="Fu et al. 2024 (survey), section 4.1: Yang et al. 2022, Wang et al. 2020b",
            observers=(PASSIVE_PARTY,),
        )

    def _factor(self, releases: int) -> float:
        """The scale of the noise over the sensitivity."""
        if self.noise == "gaussian":
            return gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=releases)
        return 1 / self.each_of(releases)
