"""Null attack that imputes a column from the record's other columns and its label, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.recorder import View
from ..attack import Knowledge
from .attribute_attack import AttributeAttack


@dataclass(frozen=True, kw_only=True)
class ImputedAttribute(AttributeAttack):
    """A null attack that returns the values imputed by a regression on public records, as the baseline of attribute
    inference (Jayaraman and Evans 2022).
    """

    null: ClassVar[bool] = True
    observer: ClassVar[Observer] = FINAL_MODEL

    def scores(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> FloatArray:
        return np.zeros(len(self.shown(knowledge).labels))
