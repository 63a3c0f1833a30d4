"""Writer membership: whether any image of this writer trained, the question of user-level claims."""

from dataclasses import dataclass

import numpy as np

from ....fl.probe import OwnerProbe, plant_users
from ....fl.task import Task
from ...attack import Undefined
from .people_attack import PeopleAttack


@dataclass(frozen=True, kw_only=True)
class WriterMembership(PeopleAttack):
    """Asks about the owners of samples, by equally many of each: QMNIST's writers, say.

    It needs a federation that holds some clients out (``held_out``) and whole writers with them: partition
    ``by_owner``.
    """

    def plant(self, task: Task, rng: np.random.Generator) -> OwnerProbe:
        if task.owners is None:
            raise Undefined("nobody knows whose the images of this data set are: there are no writers to ask about")
        return plant_users(task, count=self.count, rng=rng)
