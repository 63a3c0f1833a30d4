"""A federation of random images, a recorder that keeps all, a chi-square test: a test names only what it is about."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import toy_federation
from fedassay.fl.plan import Plan
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from scipy.stats import chi2
from tape import Tape


@pytest.fixture(scope="session")
def toy_task() -> Callable[..., Task]:
    return toy_federation.toy_task


@pytest.fixture(scope="session")
def toy_plan() -> Callable[..., Plan]:
    return toy_federation.toy_plan


@pytest.fixture(scope="session")
def has_std() -> Callable[..., bool]:
    """Whether centred Gaussian numbers have a standard deviation: chi-square, falsely "no" once in a million seeds."""

    def test(values: torch.Tensor | np.ndarray, std: float) -> bool:
        numbers = np.asarray(values, dtype=np.float64).ravel()
        low, high = chi2.ppf([5e-7, 1 - 5e-7], numbers.size)
        return bool(low <= np.square(numbers).sum() / std**2 <= high)

    return test


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
