"""Attack that infers whether training used any image of a writer, the secret that user-level claims protect."""

from dataclasses import dataclass

import numpy as np

from ...fl.candidates import PlantedOwners, plant_users
from ...fl.task import Task
from ..attack import Undefined
from .owner_attack import OwnerAttack


@dataclass(frozen=True, kw_only=True)
class WriterMembership(OwnerAttack):
    """An attack that infers which owners of samples, such as writers in QMNIST, took part in training; each owner is
    scored by the same number of samples.

    It needs a federation that holds some clients out (``held_out``) and whole writers with them (partition
    ``by_owner``).
    """

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedOwners:
        if task.owners is None:
            raise Undefined("the data set does not name the owners of its images, so there are no users to score")
        return plant_users(task, count=self.count, rng=rng)
