"""A federation of random images and what an attacker knows of it: a test names only what it is about."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import toy_federation
from fedassay.attacks.attack import Knowledge, Level
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.task import Task


@pytest.fixture(scope="session")
def toy_task() -> Callable[..., Task]:
    """(sizes, model, ...) -> random images of 3 classes, as if each owner had written two."""

    def build(sizes: tuple[int, ...] = (4, 6, 5), **changes: Any) -> Task:
        return toy_federation.toy_task(sizes, owners=torch.arange(sum(sizes)) // 2, **changes)

    return build


@pytest.fixture(scope="session")
def toy_plan() -> Callable[..., Plan]:
    return toy_federation.toy_plan


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
