"""Null attack that gives every person the most frequent label, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import PersonLabels
from ...fl.vertical.view import VerticalView
from .attack import PersonLabelAttack, VerticalKnowledge


@dataclass(frozen=True, kw_only=True)
class MajorityLabel(PersonLabelAttack):
    """A null attack whose score of a class is its share, the same for every person: the best guess of each label
    without any observation.
    """

    null: ClassVar[bool] = True

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)``."""
        return self.evidence(knowledge.prior.expand(view.plan.people, -1), view, knowledge)
