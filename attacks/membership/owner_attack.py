"""Base class of attacks that infer whether a client or user ever took part in training."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency
from ...audit.evidence import CandidateScores
from ...audit.observer import AGGREGATE, SHUFFLED, Observer
from ...fl.candidates import OwnerCandidates, PlantedOwners, plant_clients
from ...fl.fields import Several
from ...fl.objective import TASKS
from ...fl.recorder import View
from ...fl.task import Task
from ..attack import Attack, Knowledge, Undefined, clustered_setting
from ..uploads import reduce_view
from .candidates import RoundRows, candidate_gradients, rounds_of


@dataclass(frozen=True, kw_only=True)
class OwnerAttack(Attack, ABC):
    """A base class of attacks that score owners of samples (clients or users), each owner by the same number of
    samples. Half of the owners never took part, although they hold samples as the others do.

    The score is the mean, over rounds, of the cosine between what was seen and the mean gradient of the owner's
    samples. Of several rows the highest cosine counts, because it is not known which client holds a user's samples.

    Args:
        count: owners per side, or as many as there are.
    """

    observer: ClassVar[Observer] = AGGREGATE
    handles_reduced_views: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = TASKS
    count: Several = 20

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedOwners:
        return plant_clients(task, count=self.count, rng=rng)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        shown = knowledge.candidates
        if not isinstance(shown, OwnerCandidates):
            raise ValueError(
                f"{type(self).__name__} needs clients or users as candidates, which must be planted before training"
            )
        setting = clustered_setting(view, shown.unit, Adjacency.ADD_REMOVE)
        stood = self.scores(view, knowledge, shown, rng)
        marked = tuple((rounds, scores) for rounds, scores in stood.items() if rounds in view.plan.marks)
        return CandidateScores(stood[max(stood)], setting, history=marked if len(stood) > 1 else ())

    def scores(
        self, view: View, knowledge: Knowledge, shown: OwnerCandidates, rng: np.random.Generator
    ) -> dict[int, np.ndarray]:
        """Return each owner's membership score after each of several numbers of observed rounds; a higher score means
        that the owner took part.

        The scores ``(owners,)`` after the last round count.
        """
        if view.observer.rank == SHUFFLED.rank:
            reduced = reduce_view(view, knowledge)
            view, knowledge = reduced.view, reduced.knowledge
        seen = [(rows.round + 1, _cosines(rows, knowledge, shown).amax(0)) for rows in rounds_of(view)]
        if not seen:
            raise Undefined("no client took part in any round, so there is nothing to score")
        cosines = torch.stack([found for _, found in seen])
        means = [np.asarray(cosines[:number].mean(0).numpy(), dtype=np.float64) for number in range(1, len(seen) + 1)]
        return {rounds: mean for (rounds, _), mean in zip(seen, means, strict=True)}


def _cosines(rows: RoundRows, knowledge: Knowledge, shown: OwnerCandidates) -> Tensor:
    """Cosines ``(m, owners)`` of every row with every owner's mean gradient, double precision; 0 for zero length."""
    total = rows.model.new_zeros(shown.count, len(rows.model))
    for which, gradients in candidate_gradients(knowledge.network, rows.model, shown):
        total.index_add_(0, shown.owner[which], gradients)
    # A sum has the direction of the mean, so it is not divided by the number of samples.
    lengths = torch.linalg.vector_norm(rows.gradients, dim=1, keepdim=True) * torch.linalg.vector_norm(total, dim=1)
    cosines: Tensor = (rows.gradients @ total.T) / lengths.clamp_min(1e-30)
    return cosines.double()
