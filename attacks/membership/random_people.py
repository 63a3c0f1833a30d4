"""Null attack: scores of clients drawn at random, without a look at the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.observer import FINAL_MODEL, Observer
from ...fl.probe import People, PeopleProbe, plant_clients
from ...fl.task import Task
from ...fl.view import View
from ..attack import Knowledge
from ..people_attack import PeopleAttack


@dataclass(frozen=True, kw_only=True)
class RandomPeople(PeopleAttack):
    """What client and writer membership are to be better than."""

    null: ClassVar[bool] = True
    observer: ClassVar[Observer] = FINAL_MODEL

    def plant(self, task: Task, rng: np.random.Generator) -> PeopleProbe:
        return plant_clients(task, count=self.count, rng=rng)

    def scores(self, view: View, knowledge: Knowledge, shown: People, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(shown.count)
