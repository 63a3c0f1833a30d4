"""Federations of random images, and plans without a task: a test names only what it is about."""

from typing import Any

import torch
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.layout import Layout
from fedassay.fl.models.layers import thresholds
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams, uniform
from fedassay.fl.task import Task


def toy_task(
    sizes: tuple[int, ...] = (4, 6, 5),
    *,
    model: str = "logistic",
    side: int = 3,
    classes: int = 3,
    inert: int = 0,
    outsiders: int = 8,
    seed: int = 0,
    held_out: int = 0,
    stream: str = "toy task",
    shuffled: bool = False,
    **fields: Any,
) -> Task:
    """Random images, two of each owner; ``inert`` unused weights behind the model's own; the last ``held_out`` clients
    never take part.
    """
    rng = Streams(seed).generator(stream)

    def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return uniform(rng, (n, 1, side, side)), torch.from_numpy(rng.integers(classes, size=n))

    (pool, labels), (outside, outside_labels), (test, test_labels) = data(sum(sizes)), data(outsiders), data(9)
    dealt = torch.from_numpy(rng.permutation(sum(sizes))) if shuffled else torch.arange(sum(sizes))
    hands, bins = dealt.split(list(sizes)), thresholds(test, 8) if model == "imprint" else ()
    return Task(
        network=Network(model=model, shape=(1, side, side), classes=classes, inert=inert, bins=bins),
        images=pool,
        labels=labels,
        parts=hands[: len(sizes) - held_out],
        held_out=hands[len(sizes) - held_out :],
        outsider_images=outside,
        outsider_labels=outside_labels,
        test_images=test,
        test_labels=test_labels,
        **({"owners": torch.arange(sum(sizes)) // 2} | fields),
    )


def toy_plan(task: Task, **changes: Any) -> Plan:
    """The task's plan; by default three rounds of FedSGD with all clients and samples."""
    fields: dict[str, Any] = {"rounds": 3, "cohort": Full(), "lot": Full(), "algorithm": FedSGD(learning_rate=0.5)}
    fields |= {"sizes": task.sizes, "layout": task.network.layout, "clients_per_user": task.clients_per_user}
    return Plan(**(fields | changes))


def flat_plan(clients: int = 10_000, dim: int = 7850, *, size: int = 6, **changes: Any) -> Plan:
    """A plan without a task: one round of FedSGD with all clients, of ``size`` samples each, on ``dim`` weights."""
    fields: dict[str, Any] = {"rounds": 1, "cohort": Full(), "lot": Full(), "algorithm": FedSGD(learning_rate=0.5)}
    fields |= {"sizes": (size,) * clients, "layout": Layout(names=("weight",), shapes=((dim,),))}
    return Plan(**(fields | changes))
