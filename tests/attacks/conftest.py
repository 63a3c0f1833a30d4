"""A federation of random images and what an attacker knows of it: a test names only what it is about."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fedassay.attacks.attack import Knowledge, Level
from fedassay.fl.algorithms.algorithm import FedSGD
from fedassay.fl.models.imprint import thresholds
from fedassay.fl.models.network import Network
from fedassay.fl.partitions.sampling import Full
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.streams import Streams, uniform
from fedassay.fl.task import Task


@pytest.fixture(scope="session")
def toy_task() -> Callable[..., Task]:
    """(sizes, model, ...) -> random images of 3 classes; ``inert`` unused weights behind the model's own; of
    the clients the last ``held_out`` never take part.
    """

    def build(
        sizes: tuple[int, ...] = (4, 6, 5),
        *,
        model: str = "logistic",
        side: int = 3,
        inert: int = 0,
        outsiders: int = 8,
        seed: int = 0,
        held_out: int = 0,
    ) -> Task:
        rng = Streams(seed).generator("toy task")

        def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
            return uniform(rng, (n, 1, side, side)), torch.from_numpy(rng.integers(3, size=n))

        (pool, labels), (outside, outside_labels), (test, test_labels) = data(sum(sizes)), data(outsiders), data(9)
        hands = torch.arange(sum(sizes)).split(list(sizes))
        return Task(
            network=Network(
                model=model,
                shape=(1, side, side),
                classes=3,
                inert=inert,
                bins=thresholds(test, 8) if model == "imprint" else (),
            ),
            images=pool,
            labels=labels,
            parts=hands[: len(sizes) - held_out],
            held_out=hands[len(sizes) - held_out :],
            # As if each had written two.
            owners=torch.arange(sum(sizes)) // 2,
            outsider_images=outside,
            outsider_labels=outside_labels,
            test_images=test,
            test_labels=test_labels,
        )

    return build


@pytest.fixture(scope="session")
def toy_plan() -> Callable[..., Plan]:
    """(task, changes) -> its plan; by default three rounds of FedSGD with all clients and samples."""

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
def knowledge_of() -> Callable[..., Knowledge]:
    """(task, plan, protection, changes) -> what a realistic attacker knows."""

    def build(task: Task, plan: Plan, protection: Protection, **changes: Any) -> Knowledge:
        fields: dict[str, Any] = {
            "level": Level.REALISTIC,
            "network": task.network,
            "plan": plan,
            "law": lambda observer, client: protection.law(observer, plan, client),
            "public_images": task.test_images,
            "public_labels": task.test_labels,
        }
        return Knowledge(**(fields | changes))

    return build
