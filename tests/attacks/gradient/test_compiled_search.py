"""Compiled gradient search: equal to the eager one but for rounding, deterministic, refused where it cannot be made."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from digits_federation import digits_run, psnr
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient import search as module
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.search import Cosine, check_compiled, compiled_slopes, slopes
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.models.network import Network
from fedassay.fl.recorder import View
from fedassay.fl.streams import normal, uniform
from fedassay.fl.task import Task
from fedassay.suites.config.catalogue import build
from fedassay.suites.config.source import ConfigError


@cache
def federation(model: str) -> tuple[Task, View, Knowledge]:
    return digits_run(model, 4, algorithm=FedSGD(learning_rate=0.1))


def objective(model: str, n: int, k: int = 1, inert: int = 0) -> Cosine:
    """Candidates of random uploads with labels 0 to n - 1."""
    network, rng = Network(model=model, shape=(1, 8, 8), classes=10, inert=inert), np.random.default_rng(0)
    dropout = network.draw_dropout(rng, (n, 1))
    return Cosine(
        network=network,
        model=network.initial(rng),
        gradients=normal(rng, (n, network.layout.dim)),
        labels=torch.eye(10)[torch.arange(n * k) % 10].view(n, k, 10),
        total_variation=0.1,
        dropout=dropout,
    )


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The functions themselves, in place of their machine code, whose compilation takes ten seconds."""
    module._function.cache_clear()
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    yield
    module._function.cache_clear()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(("model", "k"), [("logistic", 1), ("mlp", 3), ("lenet", 2), ("lenet_dropout", 1)])
def test_the_slopes_are_those_of_the_cosine(model: str, k: int) -> None:
    """Five candidates, padded to eight, and 33, in two calls; also with unused weights."""
    for n in (1, 5, 33):
        cosine = objective(model, n, k, inert=2)
        images = uniform(np.random.default_rng(1), (n, k, 1, 8, 8))
        torch.testing.assert_close(compiled_slopes(cosine)(images), slopes(cosine.values, images), atol=1e-7, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_machine_code_finds_the_images_of_the_eager_search(model: str) -> None:
    """Slopes within 1e-5 of the largest; of five signed steps 99 % of pixels alike; the same bits in every run."""
    cosine = objective(model, 8)
    images = uniform(np.random.default_rng(1), (8, 1, 1, 8, 8))
    eager = slopes(cosine.values, images)
    torch.testing.assert_close(compiled_slopes(cosine)(images), eager, atol=float(1e-5 * eager.abs().max()), rtol=0)
    task, view, knowledge = federation(model)
    one, other, again = (
        GradientInversion(iterations=5, restarts=2, compiled=compiled)
        .run(view, knowledge, np.random.default_rng(0))
        .images
        for compiled in (False, True, True)
    )
    assert (np.abs(one - other) < 1e-4).mean() > 0.99
    np.testing.assert_array_equal(other, again)
    long = GradientInversion(compiled=True).run(view, knowledge, np.random.default_rng(0))
    usual = GradientInversion().run(view, knowledge, np.random.default_rng(0))
    assert abs(np.median(psnr(long.images, task)) - np.median(psnr(usual.images, task))) < 3


def test_a_search_that_cannot_be_compiled_is_refused_before_training() -> None:
    attack, rng = GradientInversion(compiled=True), np.random.default_rng(0)
    with pytest.raises(ValueError, match="batch norm, got lenet_bn"):
        attack.plant(federation("lenet_bn")[0], rng)
    none = torch._inductor.config.patch({"cpp.cxx": ("/no/such/compiler",)})
    with none, pytest.raises(ValueError, match=r"C\+\+ compiler"):
        attack.plant(federation("mlp")[0], rng)
    GradientInversion().plant(federation("lenet_bn")[0], rng)


def test_an_attack_with_another_objective_cannot_be_compiled() -> None:
    with pytest.raises(ConfigError, match="compiled"):
        build("attack", "dlg", {"compiled": True})
    check_compiled(Network(model="mlp", shape=(1, 8, 8), classes=10))
