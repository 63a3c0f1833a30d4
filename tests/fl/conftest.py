"""A federation small enough to compute by hand: random 4x4 images, three classes, four unequal clients."""

import pytest
import torch
from fedassay.fl.algorithm import FedAvg
from fedassay.fl.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams, uniform
from fedassay.fl.task import Task


@pytest.fixture
def make_task():
    """(sizes, model, ...) -> a Task of random images; the logistic one has 51 weights and ``inert`` more."""

    def make(sizes=(6, 10, 3, 5), *, model="logistic", side=4, classes=3, inert=0, seed=0):
        rng = Streams(seed).generator("toy images")
        count = sum(sizes)

        def images(n):
            return uniform(rng, (n, 1, side, side)), torch.from_numpy(rng.integers(classes, size=n))

        pool, labels = images(count)
        outsiders, outsider_labels = images(7)
        test, test_labels = images(9)
        return Task(
            network=Network(model=model, shape=(1, side, side), classes=classes, inert=inert),
            images=pool,
            labels=labels,
            parts=torch.from_numpy(rng.permutation(count)).split(list(sizes)),
            outsider_images=outsiders,
            outsider_labels=outsider_labels,
            test_images=test,
            test_labels=test_labels,
        )

    return make


@pytest.fixture
def make_plan():
    """(task, changes) -> its Plan: three rounds, everybody and everything, two local steps, unless told."""

    def make(task, **changes):
        fields = {
            "sizes": task.sizes,
            "rounds": 3,
            "cohort": Full(),
            "lot": Full(),
            "algorithm": FedAvg(learning_rate=0.3, local_steps=2),
            "layout": task.network.layout,
        }
        return Plan(**(fields | changes))

    return make


class Tape:
    """A recorder that keeps every event whole."""

    def __init__(self):
        self.events = []

    def watch(self, event):
        self.events.append(event)

    def masks(self):
        """Everything that was drawn: each round's senders, who was present, and every lot."""
        return [
            (
                event.reports.senders,
                event.reports.present.tolist(),
                {k: [m.tolist() for m in v] for k, v in event.lots.items()},
            )
            for event in self.events
        ]


@pytest.fixture
def make_tape():
    return Tape
