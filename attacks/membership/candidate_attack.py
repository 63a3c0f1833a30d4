"""What membership attacks on candidates share: whom they ask about, and what setting their evidence has."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...audit.claim import Adjacency, Unit
from ...audit.evidence import CandidateScores
from ...fl.fields import check_count
from ...fl.probe import CandidateProbe, Candidates, plant_candidates
from ...fl.task import Task
from ...fl.view import View
from ..attack import Attack, Knowledge, Undefined, one_run


@dataclass(frozen=True, kw_only=True)
class MembershipAttack(Attack, ABC):
    """Scores candidates: samples of the clients in question, and others that nobody trained on and that are like them.

    Args:
        count: candidates a side, of each client.
        client: whose samples are in question: one client's, or ``"all"``.
    """

    count: int = 40
    client: int | Literal["all"] = 0

    def __post_init__(self) -> None:
        check_count("count", self.count)
        if self.client != "all":
            check_count("client", self.client, least=0, alternative=' or "all"')

    def plant(self, task: Task, rng: np.random.Generator) -> CandidateProbe:
        if task.exchangeable == "nobody":
            raise Undefined("no outsider is like a client's own samples under by_owner; ask about writers")
        clients = range(task.clients) if self.client == "all" else (self.client,)
        return plant_candidates(task, count=self.count, clients=clients, rng=rng)

    def shown(self, knowledge: Knowledge) -> Candidates:
        """The candidates, or ValueError where none were planted."""
        if not isinstance(knowledge.candidates, Candidates):
            raise ValueError(f"{type(self).__name__} needs candidates: plant them before training")
        return knowledge.candidates

    def evidence(
        self, scores: np.ndarray, view: View, history: Sequence[tuple[int, np.ndarray]] = ()
    ) -> CandidateScores:
        """Scores of one run: its candidates share every noise draw, so they are no independent trials, and where they
        were planted they are in by a fixed split, by no coin each: such evidence is clustered and judges no claim.

        ``scores``: (n,), where nothing names a client; or (clients, n), one for each client in question; ``history``:
        the same as they stood after so many rounds.
        """
        stood = tuple((rounds, values.reshape(-1)) for rounds, values in history)
        setting = one_run(view, Unit.SAMPLE, Adjacency.ADD_REMOVE)
        return CandidateScores(scores.reshape(-1), setting, history=stood)
