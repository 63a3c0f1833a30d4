"""Null attack that infers labels from the party's own columns and few known labels, without the federation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import PersonLabels
from ...fl.vertical.view import VerticalView
from .attack import PersonLabelAttack, VerticalKnowledge
from .model_completion import learnt_scores


@dataclass(frozen=True, kw_only=True)
class ImputedLabels(PersonLabelAttack):
    """A null attack whose score of a class is its log probability by a logistic regression on the party's own columns,
    learnt from the known people.

    It uses no message and no trained model: it needs the party's columns and the known labels alone.
    """

    null: ClassVar[bool] = True

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)``; classes without known people are the least likely.

        Raises:
            Undefined: unless people of at least two classes are known.
            ValueError: for a view without own columns.
        """
        if view.columns is None:
            raise ValueError("view must hold the own columns of a passive party, got none")
        return self.evidence(learnt_scores(view.columns.double(), knowledge), view, knowledge)
