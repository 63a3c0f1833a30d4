"""Null attack that predicts a passive party's columns from the active party's own data, without any embedding."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import PersonColumns
from ...fl.fields import check_count
from ...fl.vertical.view import VerticalView
from .attack import ColumnRegression, PersonColumnAttack, VerticalKnowledge, held_features, public_features


@dataclass(frozen=True, kw_only=True)
class ImputedColumns(PersonColumnAttack):
    """A null attack that predicts the columns from the active party's own columns and the label, by a regression learnt
    from public people.

    It uses no message: it needs these data alone.

    Args:
        random: rectified random combinations of the features, in addition to these.
        samples: largest number of public people whose rows are used.
    """

    null: ClassVar[bool] = True
    random: int = 100
    samples: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("random", self.random, least=0)
        check_count("samples", self.samples, least=2)

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonColumns:
        """Return rows ``(people, width)``.

        Raises ValueError for a party that the federation does not have, or a view of another observer.
        """
        self.check_party(view)
        chosen = rng.permutation(len(knowledge.public))[: self.samples]
        regression = ColumnRegression(random=self.random, seed=int(rng.integers(2**31)))
        public = knowledge.public.columns[self.party][chosen].double()
        found = regression.predicted(public_features(knowledge)[chosen], public, held_features(view))
        return self.evidence(found, view)
