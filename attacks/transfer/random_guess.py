"""Null attack that draws a random score for each class of each query, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import VoteScores
from ...fl.transfer.recorder import TransferView
from .vote_attack import VoteAttack, VoteKnowledge


@dataclass(frozen=True, kw_only=True)
class RandomGuess(VoteAttack):
    """A null attack that guesses every vote uniformly, as the baseline of attacks on votes."""

    null: ClassVar[bool] = True

    def run(self, view: TransferView, knowledge: VoteKnowledge, rng: np.random.Generator) -> VoteScores:
        return self.evidence(rng.random((view.plan.queries, view.plan.classes)), view)
