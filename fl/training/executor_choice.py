"""Finds an executor by its name, and chooses the executor of a federation that names none."""

import importlib
from typing import cast

from ...audit.parts import names_in
from ...audit.wording import nearest
from ..algorithms import FedSGD
from ..canary import Canaries
from ..plan import Plan
from ..protection import Protection
from ..sampling import Full
from ..task import Task
from .devices import CPU
from .executors.batched import Batched
from .executors.sequential import Sequential
from .local import Batch, LocalTrainer

_FOLDER = f"{__package__}.executors"
# Below a hundred clients the gain of blocks is not noticeable.
_FEW = 100


def known_executors() -> tuple[str, ...]:
    """Return the names of the executors, in alphabetical order."""
    return names_in(_FOLDER)


def executor_named(name: str) -> type[LocalTrainer]:
    """Return the executor with the name of its file; raise ValueError for an unknown one."""
    known = known_executors()
    if name not in known:
        raise ValueError(f"unknown executor {name!r}; known: {nearest(name, known)}")
    module = importlib.import_module(f"{_FOLDER}.{name}")
    return cast(type[LocalTrainer], getattr(module, name.capitalize()))


def usual_executor(
    task: Task, plan: Plan, protection: Protection, batch: Batch, canary: Canaries | None, device: str = CPU
) -> type[LocalTrainer]:
    """Return the executor of a federation that names none. The default is ``sequential``, but ``batched`` on a GPU, or
    for many clients with a linear model.

    The latter holds in one replica where each client takes one step of FedSGD on all its samples.
    """
    many = (
        batch.replicas == 1
        and batch.included is None
        and canary is None
        and not protection.per_sample
        and plan.clients >= _FEW
        and isinstance(plan.lot, Full)
        and isinstance(plan.algorithm, FedSGD)
        and task.network.model == "logistic"
    )
    return Batched if many or device != CPU else Sequential
