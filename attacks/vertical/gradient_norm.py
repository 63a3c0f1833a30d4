"""Attack that infers the rarer of two labels from long gradients (norm attack, Li et al. 2022)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import PersonLabels
from ...fl.vertical.view import StepView, VerticalView
from ..attack import Undefined
from .attack import GradientLabelAttack, VerticalKnowledge, scores_by_share


@dataclass(frozen=True, kw_only=True)
class GradientNorm(GradientLabelAttack):
    """An attack whose score of the rarer class is a person's relative gradient length minus a threshold. The relative
    length is the length divided by the mean length in its step, averaged over the epochs. The rarer class's share of
    people lies above the threshold. The other class has minus that score.

    The probability of the rarer class is small for most people, so that its own people have the larger residuals. The
    attack needs the classes' shares, which are public, and no labels.
    """

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, 2)``.

        Raises:
            Undefined: for more than two classes, or two equally frequent ones.
            ValueError: for a view without gradients.
        """
        rarer = rarer_class(knowledge.prior)
        length = self.by_epoch(view, _relative_lengths).mean(0).squeeze(1)
        scores = scores_by_share(length, float(knowledge.prior[rarer]))
        return self.evidence(scores if rarer == 1 else scores.flip(1), view, knowledge)


def rarer_class(prior: Tensor) -> int:
    """Return the rarer of two classes by their shares ``(2,)``.

    Raises:
        Undefined: for more than two classes, or two equally frequent ones.
    """
    if len(prior) != 2:
        raise Undefined(f"one number per person separates two classes only, but there are {len(prior)}")
    if prior[0] == prior[1]:
        raise Undefined("both classes are equally frequent, so neither is expected to have the larger gradients")
    return int(prior.argmin())


def _relative_lengths(step: StepView, gradients: Tensor) -> Tensor:
    # Relative to the step: the top model's weights scale the gradients of all people in it.
    lengths: Tensor = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    return lengths / lengths.mean().clamp_min(1e-30)
