"""Attack that reads labels from the signs of gradients, or from clusters around the initial models' directions."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.evidence import PersonLabels
from ...fl.fields import CountOrAll
from ...fl.vertical.view import StepView, VerticalView
from .attack import GradientLabelAttack, VerticalKnowledge, unit_rows

# Alternations of assignment and mean in each step.
_PASSES = 5


@dataclass(frozen=True, kw_only=True)
class GradientSign(GradientLabelAttack):
    """An attack that needs no known labels, because models start from public parameters.

    Where embeddings are summed to logits, a person's gradient is the predicted probabilities minus the target: the one
    negative coordinate is the label. The score is minus the gradient, averaged over the epochs.

    For other top models the score of a class is the cosine with the class's direction. The directions start as the mean
    gradients that public people would receive with each label under the initial models. In each step they move to the
    mean directions of the gradients nearest to them (spherical k-means), so that they follow the training.

    Args:
        epochs: the first epochs whose gradients are used, or ``"all"``; the first alone by default, while the models
            are close to the public ones.
    """

    epochs: CountOrAll = 1

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)``.

        Raises ValueError for a view without gradients.
        """
        return self.evidence(self.readings(view, knowledge).mean(0), view, knowledge)

    def readings(self, view: VerticalView, knowledge: VerticalKnowledge) -> Tensor:
        """Return the scores from each epoch, ``(epochs, people, classes)``; the label with the highest score is the
        guess of that epoch.
        """
        if view.plan.network.summed:
            return self.by_epoch(view, lambda step, gradients: -gradients)
        centres = initial_directions(knowledge, view.party or 0)

        def cosines(step: StepView, gradients: Tensor) -> Tensor:
            nonlocal centres
            rows = unit_rows(gradients)
            centres = _moved_centres(centres, rows)
            return rows @ centres.T

        return self.by_epoch(view, cosines)


def initial_directions(knowledge: VerticalKnowledge, party: int) -> Tensor:
    """Return the mean direction ``(classes, embedding)`` of the gradients that public people with each label would
    send back to a party under the public initial models.
    """
    network, models = knowledge.plan.network, knowledge.initial
    embeddings = tuple(
        bottom.forward(layers, rows.unsqueeze(0))[0]
        for bottom, layers, rows in zip(network.bottoms, models.bottoms, knowledge.public.columns, strict=True)
    )
    logits, held = network.logits(models.top, embeddings)
    probabilities = torch.softmax(logits, dim=-1)
    means = []
    for label in range(network.classes):
        residuals = probabilities - one_hot(torch.tensor(label), network.classes)
        _, gradients = network.by_embeddings(models.top, held, residuals)
        means.append(unit_rows(gradients[party][0].double()).mean(0))
    return unit_rows(torch.stack(means))


def _moved_centres(centres: Tensor, rows: Tensor) -> Tensor:
    """The centres after a few passes of spherical k-means on ``rows (b, embedding)``; empty clusters keep theirs."""
    for _ in range(_PASSES):
        members = one_hot((rows @ centres.T).argmax(1), len(centres)).to(rows)
        sums = members.T @ rows
        centres = torch.where(members.sum(0).unsqueeze(1) > 0, unit_rows(sums), centres)
    return centres
