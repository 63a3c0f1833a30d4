"""Base class of attacks that infer whether candidate samples were used in training."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ...audit.claim import Adjacency, Unit
from ...audit.evidence import CandidateScores
from ...fl.fields import check_count
from ...fl.objective import TASKS
from ...fl.probe import CandidateProbe, Candidates, plant_candidates
from ...fl.task import Task
from ...fl.view import View
from ..attack import Attack, Knowledge, Undefined, clustered_setting


@dataclass(frozen=True, kw_only=True)
class MembershipAttack(Attack, ABC):
    """A base class of attacks that score candidates: samples of the audited clients, and comparable samples that no
    client trained on.

    Args:
        count: candidates per side, for each client.
        client: the client whose samples are in question, or ``"all"``.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS
    count: int = 40
    client: int | Literal["all"] = 0

    def __post_init__(self) -> None:
        check_count("count", self.count)
        if self.client != "all":
            check_count("client", self.client, least=0, alternative=' or "all"')

    def plant(self, task: Task, rng: np.random.Generator) -> CandidateProbe:
        # Under by_owner an outsider differs from members by its owner alone, so scores would measure that difference.
        if task.exchangeable == "none":
            raise Undefined(
                "under the partition by_owner no sample outside of training is comparable to a client's samples; "
                "use the attack writer_membership"
            )
        clients = range(task.clients) if self.client == "all" else (self.client,)
        return plant_candidates(task, count=self.count, clients=clients, rng=rng)

    def shown(self, knowledge: Knowledge) -> Candidates:
        """Return the candidate samples that the attack scores; raise ValueError if none were chosen before training."""
        if not isinstance(knowledge.candidates, Candidates):
            raise ValueError(f"{type(self).__name__} needs candidates, which must be planted before training")
        return knowledge.candidates

    def evidence(
        self, scores: np.ndarray, view: View, history: Sequence[tuple[int, np.ndarray]] = ()
    ) -> CandidateScores:
        """Return the attack's result: the membership ``scores`` from one run, with the unit, adjacency, observer and
        rounds to which they apply.

        Its candidates share every noise draw and are members by a fixed split, not by one coin each: the evidence is
        clustered and judges no claim.

        ``scores``: (n,), where no client is identified; or (clients, n), one for each client in question. ``history``:
        the same scores after so many rounds.
        """
        stood = tuple((rounds, values.reshape(-1)) for rounds, values in history)
        setting = clustered_setting(view, Unit.SAMPLE, Adjacency.ADD_REMOVE)
        return CandidateScores(scores.reshape(-1), setting, history=stood)
