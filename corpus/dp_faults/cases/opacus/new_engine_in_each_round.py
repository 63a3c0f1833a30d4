"""Each of sixteen rounds makes a new engine, and the epsilon of the last one is stated.

One round is one step on all records with noise multiplier 4: epsilon .61 at delta 1e-3. In the correct version one
engine counts all rounds, with noise multiplier 16.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program

ROUNDS = 16


def private(model, data, engine, noise_multiplier):
    return engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=20),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
    )


def build(data, noise_multiplier):
    model, engine = torch.nn.Linear(3, 1, bias=False), PrivacyEngine()
    torch.nn.init.zeros_(model.weight)
    return (*private(model, data, engine, noise_multiplier), engine)


def train(model, optimizer, loader, engine, renewed):
    for number in range(ROUNDS):
        if renewed and number:
            plain = model.to_standard_module()
            model, optimizer, loader = private(plain, loader.dataset, PrivacyEngine(), optimizer.noise_multiplier)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()


def program(noise_multiplier, renewed):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data, noise_multiplier)
        weight = next(model.parameters())
        train(model, optimizer, loader, engine, renewed)
        return weight.detach().numpy().ravel().astype(float)

    part = {
        "build": partial(build, noise_multiplier=noise_multiplier),
        "train": partial(train, renewed=renewed),
        "delta": 1e-3,
    }
    return Program(
        claim=Claim(epsilon=0.61, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": part},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(10)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="accounting",
    correct=program(16.0, renewed=False),
    broken=program(4.0, renewed=True),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/688",
    ideal="fifteen of sixteen rounds are not accounted",
    event=None,
    proof="sixteen sums with noise multiplier 4 are a Gaussian mechanism with mu 1: epsilon 3.13 at delta 1e-3",
)
