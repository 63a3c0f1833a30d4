"""Null attack that returns the mean public row for every person (the baseline for the mean squared error)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import PersonColumns
from ...fl.vertical.view import VerticalView
from .attack import PersonColumnAttack, VerticalKnowledge


@dataclass(frozen=True, kw_only=True)
class MeanColumns(PersonColumnAttack):
    """A null attack that returns the public people's mean row for every person."""

    null: ClassVar[bool] = True

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonColumns:
        """Return rows ``(people, width)``; raise ValueError for a party that the federation does not have."""
        self.check_party(view)
        mean = knowledge.public.columns[self.party].double().mean(0)
        return self.evidence(mean.expand(view.plan.people, -1), view)
