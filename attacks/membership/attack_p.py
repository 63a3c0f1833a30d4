"""Attack that ranks a candidate's loss among those of population points (Attack P of Ye et al. 2022).

One threshold for all candidates, at a false positive rate measured on public points under the target itself: there is
no shadow model, and no correction for the candidate's own difficulty.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import CandidateScores
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.objective import CLASSIFICATION
from ...fl.recorder import View
from ..attack import Knowledge
from ..shadow_bank import rank_among
from .candidates import MembershipAttack
from .shadow_attack import target_logits


@dataclass(frozen=True, kw_only=True)
class AttackP(MembershipAttack):
    """An attack whose score is the share of public points whose logit under the target model is lower than the
    candidate's; ties count half.
    """

    observer: ClassVar[Observer] = FINAL_MODEL
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        found = target_logits(view, knowledge)
        return self.evidence(rank_among(found.candidates, found.population), view)
