"""Null attack that draws membership scores of clients or users at random, without using the view."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ...audit.claim import Unit
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.candidates import OwnerCandidates, PlantedOwners, plant_clients, plant_users
from ...fl.recorder import View
from ...fl.task import Task
from ..attack import Knowledge
from .owner_attack import OwnerAttack


@dataclass(frozen=True, kw_only=True)
class RandomPeople(OwnerAttack):
    """A null attack that draws membership scores of clients or users at random, as the baseline of such attacks.

    Args:
        unit: ``client``, or ``user`` for writers.
    """

    null: ClassVar[bool] = True
    observer: ClassVar[Observer] = FINAL_MODEL
    unit: Literal[Unit.CLIENT, Unit.USER] = Unit.CLIENT

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedOwners:
        # The same owners as in the real attacks: the baseline must face the same question.
        plant = plant_users if self.unit == Unit.USER else plant_clients
        return plant(task, count=self.count, rng=rng)

    def scores(
        self, view: View, knowledge: Knowledge, shown: OwnerCandidates, rng: np.random.Generator
    ) -> dict[int, np.ndarray]:
        return {view.plan.rounds: rng.standard_normal(shown.count)}
