"""The active party adds Laplace noise to one-hot labels and infers labels from them (ALIBI: Malek et al. 2021)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....fl.vertical.protection import Noise, Noised, VerticalContext, VerticalLaw, VerticalPlan, VerticalProtection
from ..defense import RandomisedLabels, VerticalPrepared, drawn, targets_of

ONE_LABEL = 2.0
"""L1 distance between two one-hot labels."""
_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True)
class LabelLaplaceProtection(VerticalProtection):
    """A protection whose targets are one-hot labels with Laplace noise; each step replaces them by the posterior of the
    label, given the noised one and the model's prediction as the prior.

    Args:
        scale: of the noise on each number of a one-hot label.
        redraws: whether the noise is drawn again in every epoch.
    """

    scale: float
    redraws: bool = False

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return one_hot + drawn(Noise.LAPLACE, self.scale, tuple(one_hot.shape), rng)

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        # The hook receives predicted probabilities minus targets.
        targets = targets_of(context)
        predicted = (values + targets).clamp(_LEAST, 1)
        return predicted - posterior(targets, predicted, self.scale)


class LabelLaplace(RandomisedLabels):
    """A defense for label DP, ALIBI: noise Lap(2 / eps) on each number of a one-hot label, and then iterative Bayesian
    inference: a step trains on the posterior of the label, with the prediction of the current model as the prior.

    Two one-hot labels are 2 apart in the L1 norm. The posterior is computed from the noised label and from a model that
    was trained on noised labels, so it costs nothing.

    The claims: one person's label, over the whole training, against a passive party and against the public that
    receives the final models. The noise is drawn once, or in every epoch; then the epochs share the budget.

    Args:
        epsilon, delta: the budget; delta is useful for redrawn noise alone.
        redraw: whether the noise is drawn anew in every epoch.
    """

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        releases = self.releases(plan)
        each = self.each_of(releases)
        scale = ONE_LABEL / each
        return self.stated(
            plan,
            LabelLaplaceProtection(scale=scale, redraws=self.redraw),
            VerticalLaw(noised=Noised.TARGETS, noise=Noise.LAPLACE, scale=scale, releases=releases),
            mechanism="Laplace noise on one-hot labels",
            parameters={"scale": scale, "label_epsilon": each, "releases": releases},
            accountant=self.accountant,
            source="Malek et al. 2021 (ALIBI); Dwork, McSherry, Nissim, Smith 2006, Theorem 1",
            each=each,
            once=not self.redraw,
        )


def posterior(noised: Tensor, prior: Tensor, scale: float) -> Tensor:
    """Return the posterior probability of each label, given its one-hot encoding with Laplace noise of a ``scale``;
    ``noised`` and ``prior`` have the shape ``(..., classes)``.

    The density of the noise falls as e^(-distance / scale) with the L1 distance from a label's one-hot encoding, which
    is that from 0 plus |v - 1| - |v| at the label's own number v.
    """
    likelihood = (noised.abs() - (noised - 1).abs()) / scale
    found: Tensor = torch.softmax(torch.log(prior) + likelihood, dim=-1)
    return found
