"""Computes the full-batch gradient of each of many clients, for a block of clients at a time.

With ten thousand clients of a linear model, one after the other, bookkeeping takes ten times as long as arithmetic.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from ..algorithms.algorithm import FedSGD
from ..partitions.sampling import Full
from ..plan import Plan
from ..task import Task

# Larger blocks do not fit in the cache; below a hundred clients the gain is not noticeable.
_BLOCK = 256
_FEW = 100


def uses_blocks(task: Task, plan: Plan, replicas: int) -> bool:
    """Return whether clients are trained in blocks, which is faster for many clients of a linear model.

    That holds in one replica where each client takes one step of FedSGD on all its samples. Only public facts decide,
    so the result does not depend on the defense.
    """
    return (
        replicas == 1
        and plan.clients >= _FEW
        and isinstance(plan.lot, Full)
        and isinstance(plan.algorithm, FedSGD)
        and task.network.model == "logistic"
    )


def block_gradients(task: Task, model: Tensor, senders: Sequence[int]) -> Iterator[Tensor]:
    """Yield each client's mean gradient over its samples, shape ``(1, d)``, in the order of ``senders``."""
    # Only neighbours of equal size share a block: sorting by size would change the order of the results.
    for size, group in groupby(senders, key=lambda sender: len(task.parts[sender])):
        clients = list(group)
        for start in range(0, len(clients), _BLOCK):
            block = clients[start : start + _BLOCK]
            held = torch.stack([task.parts[client] for client in block])
            weights = torch.full(held.shape, 1 / size)
            at = model.expand(len(block), -1)
            yield from task.network.gradient(at, task.images[held], task.labels[held], weights).unsqueeze(1)
