"""Federations of random images, and plans without a task: a test names only what it is about."""

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
    sizes=(4, 6, 5),
    *,
    model="logistic",
    side=3,
    classes=3,
    inert=0,
    outsiders=8,
    seed=0,
    held_out=0,
    stream="toy task",
    shuffled=False,
    **fields,
):
    """Random images, two of each owner; ``inert`` unused weights behind the model's own; the last ``held_out`` clients
    never take part.
    """
    rng = Streams(seed).generator(stream)

    def data(n):
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


def toy_plan(task, **changes):
    """The task's plan; by default three rounds of FedSGD with all clients and samples."""
    fields = {"rounds": 3, "cohort": Full(), "lot": Full(), "algorithm": FedSGD(learning_rate=0.5)}
    fields |= {"sizes": task.sizes, "layout": task.network.layout, "clients_per_user": task.clients_per_user}
    return Plan(**(fields | changes))


def flat_plan(clients=10_000, dim=7850, *, size=6, **changes):
    """A plan without a task: one round of FedSGD with all clients, of ``size`` samples each, on ``dim`` weights."""
    fields = {"rounds": 1, "cohort": Full(), "lot": Full(), "algorithm": FedSGD(learning_rate=0.5)}
    fields |= {"sizes": (size,) * clients, "layout": Layout(names=("weight",), shapes=((dim,),))}
    return Plan(**(fields | changes))
