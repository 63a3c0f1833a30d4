"""Attack that guesses the vote under which what was observed is likeliest, by the laws that the defense publishes."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.evidence import VoteScores
from ...audit.observer import UPLOADS
from ...fl.transfer.transfer_task import ABSTAINED
from ...fl.transfer.view import TransferView
from ..attack import Level, Undefined
from .vote_attack import VoteAttack, VoteKnowledge, released_of

_LEAST = -1e300
"""Log probability of what is impossible: scores must be finite."""


@dataclass(frozen=True, kw_only=True)
class VoteLikelihood(VoteAttack):
    """An attack whose scores are log-likelihoods of each vote, which no attack on equally likely votes can surpass.

    Of a released label: the adversary knows all other teachers' votes, as differential privacy assumes. Of a teacher's
    own answer, which the server observes: it needs no knowledge beyond the published law of an answer.
    """

    @property
    def level(self) -> Level:
        return Level.WORST_CASE

    def run(self, view: TransferView, knowledge: VoteKnowledge, rng: np.random.Generator) -> VoteScores:
        """Return log-likelihoods ``(queries, classes)``.

        Raises:
            Undefined: if the defense publishes no law of what the adversary observes.
            ValueError: if the other teachers' votes are needed and not known.
        """
        if view.observer.covers(UPLOADS) and knowledge.answer_law is not None:
            return self.evidence(self._of_answers(view, knowledge), view)
        if knowledge.label_law is None:
            raise Undefined("the defense publishes no law of a released label or of a teacher's answer")
        if knowledge.others is None:
            raise ValueError("the likelihood of a released label needs the votes of all other teachers, got none")
        plan = view.plan
        votes = knowledge.others[:, np.newaxis, :] + np.eye(plan.classes)
        likelihoods = knowledge.label_law.log_probabilities(votes)
        labels = released_of(view).labels[0].numpy()
        seen = np.where(labels == ABSTAINED, plan.classes, labels)
        scores = np.take_along_axis(likelihoods, seen[:, np.newaxis, np.newaxis], axis=-1)[..., 0]
        return self.evidence(np.maximum(scores, _LEAST), view)

    def _of_answers(self, view: TransferView, knowledge: VoteKnowledge) -> FloatArray:
        if view.answers is None or knowledge.answer_law is None:
            raise ValueError(f"the attack needs the teachers' answers, which {view.observer} does not observe")
        return knowledge.answer_law.log_likelihoods(view.answers[0, self.teacher].double().numpy())
