"""Writer membership: infers whether any image of a writer was trained on, the subject of user-level claims."""

from dataclasses import dataclass

import numpy as np

from ....fl.probe import OwnerProbe, plant_users
from ....fl.task import Task
from ...attack import Undefined
from .owner_attack import OwnerAttack


@dataclass(frozen=True, kw_only=True)
class WriterMembership(OwnerAttack):
    """Scores the owners of samples, such as QMNIST's writers, by equally many samples each.

    It needs a federation that holds some clients out (``held_out``) and whole writers with them (partition
    ``by_owner``).
    """

    def plant(self, task: Task, rng: np.random.Generator) -> OwnerProbe:
        if task.owners is None:
            raise Undefined("the data set does not name the owners of its images: there are no users to score")
        return plant_users(task, count=self.count, rng=rng)
