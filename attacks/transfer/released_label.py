"""Attack that guesses that a teacher voted for the released label, as most teachers did."""

from dataclasses import dataclass

import numpy as np

from ...audit.evidence import VoteScores
from ...fl.transfer.recorder import TransferView
from ...fl.transfer.task import ABSTAINED
from .vote_attack import VoteAttack, VoteKnowledge, released_of


@dataclass(frozen=True, kw_only=True)
class ReleasedLabel(VoteAttack):
    """An attack without any knowledge about the defense or the teacher: the guess is the released label.

    It is right as often as teachers agree, which the released labels are meant to show; what is beyond it is about this
    teacher.
    """

    def run(self, view: TransferView, knowledge: VoteKnowledge, rng: np.random.Generator) -> VoteScores:
        labels = released_of(view).labels[0].numpy()
        scores = (labels[:, np.newaxis] == np.arange(view.plan.classes)).astype(np.float64)
        # Where no label is released every class is as likely as another.
        silent = labels == ABSTAINED
        scores[silent] = rng.random((int(silent.sum()), view.plan.classes))
        return self.evidence(scores, view)
