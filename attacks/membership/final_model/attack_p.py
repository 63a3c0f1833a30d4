"""Attack P: how unusual the candidate's loss would be among the population's (Ye et al. 2022, Attack P).

One threshold for all candidates, at a false-positive rate that public points of the target itself give: no shadow
model is needed, and none of the candidate's own difficulty is taken off.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....audit.evidence import CandidateScores
from ....audit.observer import FINAL_MODEL, Observer
from ....fl.view import View
from ...attack import Knowledge
from ..candidate_attack import MembershipAttack
from .shadow_attack import outputs_of, rank_among


@dataclass(frozen=True, kw_only=True)
class AttackP(MembershipAttack):
    """score = share of public points that the target knows less well than the candidate, ties counting half."""

    observer: ClassVar[Observer] = FINAL_MODEL

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        said = outputs_of(view, knowledge)
        return self.evidence(rank_among(said.candidates, said.population), view)
