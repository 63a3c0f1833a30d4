"""Null attack that guesses at random which client a sample belongs to, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.observer import FINAL_MODEL, Observer
from ...fl.candidates import Candidates
from ...fl.recorder import View
from ..attack import Knowledge
from .source_attack import SourceAttack


@dataclass(frozen=True, kw_only=True)
class RandomSource(SourceAttack):
    """A null attack that guesses at random which client a sample belongs to; the guess is right with probability 1 /
    clients.

    It is the baseline of source inference.
    """

    null: ClassVar[bool] = True
    observer: ClassVar[Observer] = FINAL_MODEL

    def scores(self, view: View, knowledge: Knowledge, shown: Candidates, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((len(shown.labels), view.plan.clients))
