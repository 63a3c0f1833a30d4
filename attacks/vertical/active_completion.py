"""Attack by a passive party that trains its bottom model faster, then completes it (after Fu et al. 2022)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import PersonLabels
from ...fl.fields import Positive
from ...fl.vertical.view import VerticalView
from ..attack import Undefined
from .attack import VerticalKnowledge
from .model_completion import ModelCompletion


@dataclass(frozen=True, kw_only=True)
class ActiveCompletion(ModelCompletion):
    """The attack ``model_completion``, by a passive party that multiplies its own learning rate by a constant factor.

    The top model then relies more on this party's embeddings, which carry more about the labels. The malicious
    optimiser of Fu et al. chooses such a factor for each parameter from its past gradients; here it is one for all
    parameters and steps.

    Args:
        speed: the factor on the party's learning rate.
    """

    active: ClassVar[bool] = True
    speed: Positive = 5.0

    def speeds(self, party: int) -> Mapping[int, float]:
        return {party: self.speed}

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)``; classes without known people are the least likely.

        Raises:
            Undefined: if bottom models are frozen, or unless people of at least two classes are known.
            ValueError: for a view without the party's own model.
        """
        if view.plan.frozen:
            raise Undefined("the passive parties' bottom models are not trained, so none can be trained faster")
        return super().run(view, knowledge, rng)
