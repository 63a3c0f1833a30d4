"""Client loss: a client that took part is fitted better by the final model than one that was held out."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ....audit.observer import FINAL_MODEL, Observer
from ....fl.probe import OwnerCandidates, OwnerProbe, plant_clients
from ....fl.task import Task
from ....fl.view import View
from ...attack import Knowledge
from .people_attack import PeopleAttack


@dataclass(frozen=True, kw_only=True)
class ClientLoss(PeopleAttack):
    """score = minus the mean cross-entropy of a client's samples under the final model: the loss threshold (Yeom et al.
    2018), with a client for its subject. It needs a federation that holds some clients out (``held_out``).
    """

    observer: ClassVar[Observer] = FINAL_MODEL
    seated: ClassVar[bool] = False

    def plant(self, task: Task, rng: np.random.Generator) -> OwnerProbe:
        return plant_clients(task, count=self.count, rng=rng)

    def scores(
        self, view: View, knowledge: Knowledge, shown: OwnerCandidates, rng: np.random.Generator
    ) -> dict[int, np.ndarray]:
        with torch.no_grad():
            losses = knowledge.network.losses(view.final_model[0], shown.images, shown.labels).double()
        each = torch.bincount(shown.owner, minlength=shown.count)
        means = torch.bincount(shown.owner, weights=losses) / each
        return {view.plan.rounds: np.asarray(-means.numpy(), dtype=np.float64)}
