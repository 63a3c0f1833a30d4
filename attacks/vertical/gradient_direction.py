"""Attack that infers labels from the direction of gradients, given a few known labels (after Li et al. 2022)."""

from dataclasses import dataclass

import numpy as np
import torch

from ...audit.evidence import PersonLabels
from ...fl.vertical.view import VerticalView
from ..attack import Undefined
from .attack import GradientLabelAttack, VerticalKnowledge, unit_rows


@dataclass(frozen=True, kw_only=True)
class GradientDirection(GradientLabelAttack):
    """An attack whose score of a class is the cosine of the person's gradient with the mean direction of the gradients
    of known people of that class in the same epoch, averaged over the epochs.

    Li et al. (direction attack) take the cosine with one known positive person of two classes. A class without known
    people has the score 0, which stands for an unknown direction: with one known class of two this is their attack.
    """

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)`` in [-1, 1].

        Raises:
            Undefined: if no label is known.
            ValueError: for a view without gradients.
        """
        if not len(knowledge.known):
            raise Undefined(
                "the attack learns the direction of each class from people with known labels, but no label is known"
            )
        rows = self.by_epoch(view, lambda step, gradients: unit_rows(gradients))
        scores = rows.new_zeros(*rows.shape[:2], len(knowledge.prior))
        for label in torch.unique(knowledge.known_labels).tolist():
            mean = unit_rows(rows[:, knowledge.known[knowledge.known_labels == label]].mean(1))
            scores[..., label] = (rows * mean.unsqueeze(1)).sum(-1)
        return self.evidence(scores.mean(0), view, knowledge)
