"""Null attack that predicts a passive party's columns from the active party's own data, without any embedding."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import PersonColumns
from ...fl.vertical.view import VerticalView
from .attack import RegressionAttack, VerticalKnowledge, held_features, public_features


@dataclass(frozen=True, kw_only=True)
class ImputedColumns(RegressionAttack):
    """A null attack that predicts the columns from the active party's own columns and the label, by a regression learnt
    from public people.

    It uses no message: it needs these data alone.
    """

    null: ClassVar[bool] = True

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonColumns:
        """Return rows ``(people, width)``.

        Raises ValueError for a party that the federation does not have, or a view of another observer.
        """
        self.check_party(view)
        chosen, regression = self.drawn(knowledge, rng)
        public = knowledge.public.columns[self.party][chosen].double()
        found = regression.predicted(public_features(knowledge)[chosen], public, held_features(view))
        return self.evidence(found, view)
