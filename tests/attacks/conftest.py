"""A federation of random images and what an attacker knows of it: a test names only what it is about."""

from dataclasses import replace

import pytest
import torch
import toy_federation
from fedassay.attacks.attack import Knowledge
from fedassay.fl.protection import Protection


@pytest.fixture(scope="session")
def toy_task():
    """(sizes, model, ...) -> random images of 3 classes, as if each owner had written two."""

    def build(sizes=(4, 6, 5), **changes):
        return toy_federation.toy_task(sizes, owners=torch.arange(sum(sizes)) // 2, **changes)

    return build


@pytest.fixture(scope="session")
def toy_plan():
    return toy_federation.toy_plan


@pytest.fixture(scope="session")
def knowledge_of():
    """(task, plan, protection, changes) -> what a realistic attacker knows."""

    def build(task, plan, protection, **changes):
        return replace(Knowledge.of(task, plan, protection or Protection()), **changes)

    return build
