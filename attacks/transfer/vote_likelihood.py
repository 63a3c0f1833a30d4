"""Attack that guesses the vote under which a released label is likeliest, by the law that the defense publishes."""

from dataclasses import dataclass

import numpy as np

from ...audit.evidence import VoteScores
from ...fl.transfer.recorder import TransferView
from ...fl.transfer.task import ABSTAINED
from ..attack import Level, Undefined
from .vote_attack import LEAST, VoteAttack, VoteKnowledge, released_of


@dataclass(frozen=True, kw_only=True)
class VoteLikelihood(VoteAttack):
    """An attack whose scores are log-likelihoods of each vote given the released label of its query.

    Where votes are equally likely and independent, and labels are all that is released, each with noise of its own, no
    attack can surpass it. It does not look at other numbers that a defense publishes, such as the epsilon of
    ``gnmax_data_dependent``, which depend on the votes too.

    The adversary is the student and knows all other teachers' votes, as differential privacy assumes.
    """

    @property
    def level(self) -> Level:
        return Level.WORST_CASE

    def run(self, view: TransferView, knowledge: VoteKnowledge, rng: np.random.Generator) -> VoteScores:
        """Return log-likelihoods ``(queries, classes)``.

        Raises:
            Undefined: if the defense publishes no distribution of a released label.
            ValueError: if the other teachers' votes are not known.
        """
        if knowledge.label_law is None:
            raise Undefined("the defense publishes no distribution of a released label")
        if knowledge.others is None:
            raise ValueError("the likelihood of a released label needs the votes of all other teachers, got none")
        plan = view.plan
        votes = knowledge.others[:, np.newaxis, :] + np.eye(plan.classes)
        likelihoods = knowledge.label_law.log_probabilities(votes)
        labels = released_of(view).labels[0].numpy()
        seen = np.where(labels == ABSTAINED, plan.classes, labels)
        scores = np.take_along_axis(likelihoods, seen[:, np.newaxis, np.newaxis], axis=-1)[..., 0]
        return self.evidence(np.maximum(scores, LEAST), view)
