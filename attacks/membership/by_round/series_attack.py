"""Base class of attacks that compute a candidate's statistic under every round's global model."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....audit.evidence import CandidateScores
from ....audit.observer import GLOBAL_MODELS, Observer
from ....fl.probe import Candidates
from ....fl.view import View
from ...attack import Knowledge
from ..candidate_attack import MembershipAttack


@dataclass(frozen=True, kw_only=True)
class SeriesAttack(MembershipAttack, ABC):
    """A base class of attacks whose score is the mean of a statistic over the global models of all rounds, without the
    initial model.

    All clients receive the same models, so there is one score per candidate, for any client in question.
    """

    observer: ClassVar[Observer] = GLOBAL_MODELS

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        shown = self.shown(knowledge)
        if any(seen.broadcast is None for seen in view.rounds):
            raise ValueError("the view must hold the model of every round, got a round without one")
        # Without the first model: it is drawn before any client uses a sample.
        models = [seen.broadcast[0] for seen in view.rounds[1:] if seen.broadcast is not None] + [view.final_model[0]]
        values = [self.statistic(model, knowledge, shown) for model in models]
        history = [(rounds, np.mean(values[:rounds], axis=0)) for rounds in view.plan.marks]
        return self.evidence(np.mean(values, axis=0), view, history)

    def statistic(self, model: Tensor, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        """Compute a statistic of all n candidates at one model ``(d,)``, shape ``(n,)``; a higher value means
        a member.
        """
        raise TypeError(
            f"every SeriesAttack must define statistic(model, knowledge, shown), but {type(self).__name__} does not"
        )
