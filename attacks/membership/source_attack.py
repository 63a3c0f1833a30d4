"""Base class of attacks that infer which client trained on a sample that one of the clients used."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...audit.claim import Adjacency, Unit
from ...audit.evidence import SourceScores
from ...fl.candidates import Candidates, PlantedCandidates, plant_candidates
from ...fl.fields import Count
from ...fl.objective import TASKS
from ...fl.recorder import View
from ...fl.task import Task
from ..attack import Attack, Knowledge, clustered_setting


@dataclass(frozen=True, kw_only=True)
class SourceAttack(Attack, ABC):
    """A base class of attacks that score every client as the possible owner of each sample, for ``count`` samples drawn
    from each client.

    Under label skew the label alone reveals much about the source: guessing the client with most samples of the label
    is right more often than 1 / clients, the chance with which scores are compared, without separating any two samples
    of one label.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS
    count: Count = 10

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedCandidates:
        # No outsider is scored, so it does not matter that none is comparable to a client's samples.
        without_outsiders = replace(task, exchangeable="all")
        return plant_candidates(without_outsiders, count=self.count, clients=range(task.clients), rng=rng)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> SourceScores:
        if not isinstance(knowledge.candidates, Candidates):
            raise ValueError(f"{type(self).__name__} needs candidates, which must be planted before training")
        setting = clustered_setting(view, Unit.SAMPLE, Adjacency.REPLACE_ONE)
        return SourceScores(self.scores(view, knowledge, knowledge.candidates, rng), setting)

    @abstractmethod
    def scores(self, view: View, knowledge: Knowledge, shown: Candidates, rng: np.random.Generator) -> np.ndarray:
        """Compute scores ``(n, clients)``; a higher score means that the sample more likely belongs to the client."""
