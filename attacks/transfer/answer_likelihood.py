"""Attack that guesses the vote under which what a teacher sent is likeliest, by the law that the defense publishes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import VoteScores
from ...audit.observer import UPLOADS, Observer
from ...fl.transfer.recorder import TransferView
from ..attack import Undefined
from .vote_attack import LEAST, VoteAttack, VoteKnowledge


@dataclass(frozen=True, kw_only=True)
class AnswerLikelihood(VoteAttack):
    """An attack of the server, which receives every teacher's own answers. The attack's scores are log-likelihoods of
    each vote.

    Where the defense publishes no law of an answer, an answer with one number per class is itself the scores: that is a
    vote or noisy logits.
    """

    observer: ClassVar[Observer] = UPLOADS

    def run(self, view: TransferView, knowledge: VoteKnowledge, rng: np.random.Generator) -> VoteScores:
        """Return the log-likelihood of each vote, ``(queries, classes)``; without a published law of an answer, return
        the answers.

        Raises:
            Undefined: if the defense publishes no law of an answer, and an answer has no number per class.
            ValueError: for a view without the answers.
        """
        if view.answers is None:
            raise ValueError(f"the attack needs the teachers' answers, which {view.observer} does not observe")
        own = view.answers[0, self.teacher].double().numpy()
        if knowledge.answer_law is not None:
            return self.evidence(np.maximum(knowledge.answer_law.log_likelihoods(own), LEAST), view)
        if own.shape[-1] != view.plan.classes:
            raise Undefined(
                "the defense publishes no distribution of a teacher's answer, and the answer does not have one "
                "number per class"
            )
        return self.evidence(own, view)
