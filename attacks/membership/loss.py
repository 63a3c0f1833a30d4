"""Attack that infers membership from a low loss under the final model (Yeom et al. 2018, Adversary 1)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...audit.evidence import CandidateScores
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.recorder import View
from ..attack import Knowledge
from .candidates import MembershipAttack


@dataclass(frozen=True, kw_only=True)
class LossThreshold(MembershipAttack):
    """An attack whose score is minus the cross-entropy of the candidate under the final model.

    Batch norm uses the candidates' own statistics: all candidates are one lot.
    """

    observer: ClassVar[Observer] = FINAL_MODEL

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        shown = self.shown(knowledge)
        with torch.no_grad():
            losses = knowledge.network.losses(view.final_model[0], shown.images, shown.labels)
        return self.evidence(-losses.double().numpy(), view)
