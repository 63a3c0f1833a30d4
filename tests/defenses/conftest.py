"""A federation of random images, a recorder that keeps all, a chi-square test: a test names only what it is about."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fedassay.fl.algorithms.algorithm import FedSGD
from fedassay.fl.models.network import Network
from fedassay.fl.partitions.sampling import Full
from fedassay.fl.plan import Plan
from fedassay.fl.streams import Streams, uniform
from fedassay.fl.task import Task
from scipy.stats import chi2


@pytest.fixture(scope="session")
def toy_task() -> Callable[..., Task]:
    """(sizes, model, ...) -> random images of 3 classes; ``inert`` unused weights behind the model's own."""

    def build(
        sizes: tuple[int, ...] = (4, 6, 5),
        *,
        model: str = "logistic",
        side: int = 3,
        inert: int = 0,
        outsiders: int = 8,
        seed: int = 0,
    ) -> Task:
        rng = Streams(seed).generator("toy task")

        def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
            return uniform(rng, (n, 1, side, side)), torch.from_numpy(rng.integers(3, size=n))

        (pool, labels), (outside, outside_labels), (test, test_labels) = data(sum(sizes)), data(outsiders), data(9)
        return Task(
            network=Network(model=model, shape=(1, side, side), classes=3, inert=inert),
            images=pool,
            labels=labels,
            parts=torch.arange(sum(sizes)).split(list(sizes)),
            outsider_images=outside,
            outsider_labels=outside_labels,
            test_images=test,
            test_labels=test_labels,
        )

    return build


@pytest.fixture(scope="session")
def toy_plan() -> Callable[..., Plan]:
    """(task, changes) -> its plan: three rounds of FedSGD with all clients and full lots, unless changed."""

    def build(task: Task, **changes: Any) -> Plan:
        fields: dict[str, Any] = {
            "sizes": task.sizes,
            "rounds": 3,
            "cohort": Full(),
            "lot": Full(),
            "algorithm": FedSGD(learning_rate=0.5),
            "layout": task.network.layout,
        }
        return Plan(**(fields | changes))

    return build


@pytest.fixture(scope="session")
def has_std() -> Callable[..., bool]:
    """Whether centred Gaussian numbers have a standard deviation: chi-square, falsely "no" once in a million seeds."""

    def test(values: torch.Tensor | np.ndarray, std: float) -> bool:
        numbers = np.asarray(values, dtype=np.float64).ravel()
        low, high = chi2.ppf([5e-7, 1 - 5e-7], numbers.size)
        return bool(low <= np.square(numbers).sum() / std**2 <= high)

    return test


class Tape:
    """A recorder that keeps every event whole."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def watch(self, event: Any) -> None:
        self.events.append(event)


@pytest.fixture
def make_tape() -> type[Tape]:
    return Tape


@pytest.fixture
def tape() -> Tape:
    return Tape()


@pytest.fixture
def streams() -> Streams:
    return Streams(5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
