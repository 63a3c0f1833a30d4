"""Crowd: the one full-batch gradient of each of many clients, a block of clients at a time.

Ten thousand clients of a linear model, one after the other, spend ten times as long on bookkeeping as on arithmetic.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from ..algorithms.algorithm import FedSGD
from ..partitions.sampling import Full
from ..plan import Plan
from ..task import Task

_BLOCK = 256
_FEW = 100


def is_crowd(task: Task, plan: Plan, replicas: int) -> bool:
    """Whether one replica's clients are so many that they go in blocks; each takes one step of FedSGD on all that it
    holds, of a linear model. Public facts alone: a federation goes the same way whatever protects it.
    """
    return (
        replicas == 1
        and plan.clients >= _FEW
        and isinstance(plan.lot, Full)
        and isinstance(plan.algorithm, FedSGD)
        and task.network.model == "logistic"
    )


def crowd_gradients(task: Task, model: Tensor, senders: Sequence[int]) -> Iterator[Tensor]:
    """Mean gradient ``(1, d)`` over the samples of each of ``senders``, in their order."""
    for size, group in groupby(senders, key=lambda sender: len(task.parts[sender])):
        clients = list(group)
        for start in range(0, len(clients), _BLOCK):
            block = clients[start : start + _BLOCK]
            held = torch.stack([task.parts[client] for client in block])
            weights = torch.full(held.shape, 1 / size)
            at = model.expand(len(block), -1)
            yield from task.network.gradient(at, task.images[held], task.labels[held], weights).unsqueeze(1)
