"""Source attack: which client trained on a sample. What attacks on it share."""

from abc import ABC
from dataclasses import dataclass, replace

import numpy as np

from ....audit.claim import Adjacency, Unit
from ....audit.evidence import SourceScores
from ....fl.fields import check_count
from ....fl.probe import CandidateProbe, Candidates, plant_candidates
from ....fl.task import Task
from ....fl.view import View
from ...attack import Attack, Knowledge, one_run


@dataclass(frozen=True, kw_only=True)
class SourceAttack(Attack, ABC):
    """Asks of ``count`` samples of each client whose they are. That somebody trained on them is known.

    Under label skew the label alone tells much of the source: a guess by who has most of that label is right more often
    than the chance, 1 / clients, that scores are set against, without any sample being told from another of its label.
    """

    count: int = 10

    def __post_init__(self) -> None:
        check_count("count", self.count)

    def plant(self, task: Task, rng: np.random.Generator) -> CandidateProbe:
        # Outsiders are no part of the question and do not count: they need be like nobody's samples.
        anybody = replace(task, exchangeable="all")
        return plant_candidates(anybody, count=self.count, clients=range(task.clients), rng=rng)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> SourceScores:
        if not isinstance(knowledge.candidates, Candidates):
            raise ValueError(f"{type(self).__name__} needs candidates: plant them before training")
        setting = one_run(view, Unit.SAMPLE, Adjacency.REPLACE_ONE)
        return SourceScores(self.scores(view, knowledge, knowledge.candidates, rng), setting)

    def scores(self, view: View, knowledge: Knowledge, shown: Candidates, rng: np.random.Generator) -> np.ndarray:
        """(n, clients), higher means "it is this one's"."""
        raise TypeError(f"{type(self).__name__} does not define scores(view, knowledge, shown, rng)")
