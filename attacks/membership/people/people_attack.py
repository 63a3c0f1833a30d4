"""Owner attack: did this client, or this writer, ever take part in training?"""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.claim import Adjacency
from ....audit.evidence import CandidateScores
from ....audit.observer import AGGREGATE, SHUFFLED, Observer
from ....fl.fields import check_count
from ....fl.probe import OwnerCandidates
from ....fl.view import View
from ...attack import Attack, Knowledge, Undefined, one_run
from ...reduced_view import seat
from ..alignment import RoundRows, candidate_gradients, rounds_of


@dataclass(frozen=True, kw_only=True)
class PeopleAttack(Attack, ABC):
    """Scores people, half of whom were dealt samples like any client and never took part, by samples of their own,
    equally many of each: the mean, over rounds, of the cosine between what was seen and the mean gradient of those
    samples. Of several rows, named or not, the highest counts: nobody says with which client a person would be.

    Args:
        count: people a side, or as many as there are.
    """

    observer: ClassVar[Observer] = AGGREGATE
    seated: ClassVar[bool] = True
    count: int = 20

    def __post_init__(self) -> None:
        check_count("count", self.count, least=2)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        shown = knowledge.candidates
        if not isinstance(shown, OwnerCandidates):
            raise ValueError(f"{type(self).__name__} needs people: plant them before training")
        setting = one_run(view, shown.unit, Adjacency.ADD_REMOVE)
        stood = self.scores(view, knowledge, shown, rng)
        marked = tuple((rounds, scores) for rounds, scores in stood.items() if rounds in view.plan.marks)
        return CandidateScores(stood[max(stood)], setting, history=marked if len(stood) > 1 else ())

    def scores(
        self, view: View, knowledge: Knowledge, shown: OwnerCandidates, rng: np.random.Generator
    ) -> dict[int, np.ndarray]:
        """(people,), higher means "took part", by the rounds seen so far; the attack's own are those of most rounds."""
        if view.observer.rank == SHUFFLED.rank:
            seated = seat(view, knowledge)
            view, knowledge = seated.view, seated.knowledge
        seen = [(rows.round + 1, _cosines(rows, knowledge, shown).amax(0)) for rows in rounds_of(view)]
        if not seen:
            raise Undefined("nobody came to any round: there is nothing to score")
        cosines = torch.stack([found for _, found in seen])
        means = [np.asarray(cosines[:number].mean(0).numpy(), dtype=np.float64) for number in range(1, len(seen) + 1)]
        return {rounds: mean for (rounds, _), mean in zip(seen, means, strict=True)}


def _cosines(rows: RoundRows, knowledge: Knowledge, shown: OwnerCandidates) -> Tensor:
    """Of every row with every person's mean gradient, ``(m, people)``, double precision; 0 where a length is 0."""
    total = rows.model.new_zeros(shown.count, len(rows.model))
    for which, gradients in candidate_gradients(knowledge.network, rows.model, shown):
        total.index_add_(0, shown.owner[which], gradients)
    # A mean and a sum have one direction.
    lengths = torch.linalg.vector_norm(rows.gradients, dim=1, keepdim=True) * torch.linalg.vector_norm(total, dim=1)
    cosines: Tensor = (rows.gradients @ total.T) / lengths.clamp_min(1e-30)
    return cosines.double()
