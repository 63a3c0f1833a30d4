"""Null attack that draws each person's label by the classes' public shares, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch.nn.functional import one_hot

from ...audit.evidence import PersonLabels
from ...fl.vertical.view import VerticalView
from .attack import PersonLabelAttack, VerticalKnowledge


@dataclass(frozen=True, kw_only=True)
class DrawnLabels(PersonLabelAttack):
    """A null attack whose score is 1 for a label drawn by the classes' shares, and 0 for the others."""

    null: ClassVar[bool] = True

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)``."""
        shares = knowledge.prior.double().numpy()
        labels = torch.from_numpy(rng.choice(len(shares), size=view.plan.people, p=shares / shares.sum()))
        return self.evidence(one_hot(labels, len(shares)), view, knowledge)
