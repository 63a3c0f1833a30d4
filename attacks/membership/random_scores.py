"""Null attack that draws membership scores at random, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import CandidateScores
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.recorder import View
from ..attack import Knowledge
from .candidates import MembershipAttack


@dataclass(frozen=True, kw_only=True)
class RandomScores(MembershipAttack):
    """A null attack that draws each candidate's score at random, as the baseline of membership attacks."""

    null: ClassVar[bool] = True
    observer: ClassVar[Observer] = FINAL_MODEL

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        return self.evidence(rng.standard_normal(len(self.shown(knowledge).labels)), view)
