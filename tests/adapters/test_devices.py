"""Trainings on a GPU: the checks and verdicts of the CPU. Without a GPU only the CPU's half of each test runs."""

import numpy as np
import pytest
import torch
from fedassay.adapters.function import Function
from fedassay.adapters.loop import LoopWatch
from fedassay.adapters.opacus import Training
from fedassay.audit.claim import Claim
from opacus_runs import LOSS, HalfTheNoiseOfGhostClipping, build, network, records
from torch import nn

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA"))
DEVICES = pytest.mark.parametrize("device", ["cpu", CUDA])


def loop(device, *, noise):
    """DP-SGD of a linear model by hand, with its parameters, its data and its noise on ``device``."""
    draws = torch.Generator(device).manual_seed(0)
    x = torch.randn(80, 6, device=device, generator=draws)
    model = nn.Linear(6, 1, bias=False, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = LoopWatch(model, noise_multiplier=1.0, clip_norm=1.0, records=80, rate=0.2, steps=20)
    watch.attach(optimizer)
    for _ in range(20):
        lot = torch.nonzero(torch.rand(80, device=device, generator=draws) < 0.2).flatten()
        rows = (model(x[lot]) - 3).detach() * x[lot]
        watch.lot(lot, rows)
        total = (rows * (1 / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
        noised = total + noise * torch.randn(6, device=device, generator=draws)
        watch.release(total, noised)
        model.weight.grad = noised[None] / 16
        optimizer.step()
    return {one.name for one in watch.results().failed}


@DEVICES
def test_a_loop(device):
    assert loop(device, noise=1.0) == set()
    assert loop(device, noise=0.5) == {"noise scale"}


def training(device, make=None, **options):
    """An Opacus training with its model on ``device``; its loop moves each lot there, as users do."""

    def build_there(data):
        parts = build(data, model=network().to(device), **options)
        return parts if make is None else make(*parts)

    def train(model, optimizer, *rest):
        loader, loss = rest[-2], rest[0] if len(rest) == 3 else LOSS
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x.to(device)), y.to(device)).backward()
            optimizer.step()

    return Training(build_there, train, records(), delta=1e-5)


def half_of_the_noise(model, optimizer, *rest):
    optimizer.__class__ = HalfTheNoiseOfGhostClipping
    return model, optimizer, *rest


@DEVICES
@pytest.mark.parametrize(
    ("make", "options", "expected"),
    [
        (None, {}, []),
        (None, {"grad_sample_mode": "ghost"}, []),
        (None, {"clipping": "per_layer", "max_grad_norm": [0.5] * 4}, []),
        (half_of_the_noise, {"grad_sample_mode": "ghost"}, ["noise scale"]),
    ],
    ids=["plain", "ghost clipping", "per layer", "half of the noise of ghost clipping"],
)
def test_opacus_trainings(device, make, options, expected):
    assert [one.name for one in training(device, make, **options).watch().failed] == expected


@DEVICES
def test_play_back(device):
    played = training(device).play_back()
    assert played.effective_multiplier == pytest.approx(1.0, rel=0.1)


@DEVICES
def test_equal_seeds_give_equal_bits(device):
    correct = training(device)
    first, again = (correct.run(member=True, seed=3) for _ in range(2))
    for one, other in zip(first.releases, again.releases, strict=True):
        assert torch.equal(one.released, other.released)


@DEVICES
def test_a_function_that_draws_on_the_device_is_seeded_and_its_generator_restored(device):
    def mechanism(x):
        return x + torch.distributions.Laplace(torch.zeros(1, device=device), 1.0).sample()

    function = Function(call=mechanism)

    def drawn():
        rng = np.random.default_rng(5)
        return [float(function.mechanism(0.0, rng)) for _ in range(50)]

    one = drawn()
    assert one == drawn()
    assert len(set(one)) == 50
    torch.manual_seed(1)
    expected = [torch.rand(1, device=device) for _ in range(2)]
    torch.manual_seed(1)
    first = torch.rand(1, device=device)
    drawn()
    assert [first, torch.rand(1, device=device)] == expected


@pytest.mark.long
@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batched", [False, True])
def test_tensors_of_every_device_and_type_are_outputs(device, dtype, batched):
    scale = torch.ones((), device=device, requires_grad=True)

    def mechanism(x):
        noise = torch.distributions.Laplace(torch.zeros(np.shape(x), device=device), scale).sample()
        return (scale * torch.as_tensor(x, device=device) + noise).to(dtype)

    claim = Claim.stated(1.0, unit="report", adjacency="replace_one")
    function = Function(call=mechanism, batched=batched)
    assert function.audit(claim, inputs=(0.0, 20.0), trials=2000).verdict.value == "REFUTED"
