"""What membership attacks on candidates share: whom they ask about, and what setting their evidence has."""

from dataclasses import dataclass

import numpy as np

from ..audit.claim import Adjacency, Unit
from ..audit.evidence import CandidateScores, Design, Setting
from ..fl.probe import CandidateProbe, Candidates, plant_candidates
from ..fl.task import Task
from ..fl.view import View
from .attack import Attack, Knowledge


@dataclass(frozen=True, kw_only=True)
class MembershipAttack(Attack):
    """Scores ``2 * count`` candidates: samples of one client, and as many that nobody trained on.

    Args:
        count: candidates a side.
        client: whose samples are in question.
    """

    count: int = 40
    client: int = 0

    def __post_init__(self) -> None:
        for name, number, least in (("count", self.count, 1), ("client", self.client, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ValueError(f"{name} must be a whole number >= {least}, got {number!r}")

    def plant(self, task: Task, rng: np.random.Generator) -> CandidateProbe:
        return plant_candidates(task, count=self.count, client=self.client, rng=rng)

    def shown(self, knowledge: Knowledge) -> Candidates:
        """The candidates, or ValueError where none were planted."""
        if knowledge.candidates is None:
            raise ValueError(f"{type(self).__name__} needs candidates: plant them before training")
        return knowledge.candidates

    def evidence(self, scores: np.ndarray, view: View) -> CandidateScores:
        """Scores of one run: its candidates share every noise draw, so they are no independent trials."""
        setting = Setting(
            unit=Unit.SAMPLE,
            adjacency=Adjacency.ADD_REMOVE,
            observer=view.observer,
            rounds=view.plan.rounds,
            design=Design.CLUSTERED,
        )
        return CandidateScores(scores, setting)
