"""The noise comes from a generator that is seeded with a constant in the source.

Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at delta 1e-3.
"""

from functools import partial

import numpy as np
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def build(data, seed=None):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        noise_generator=None if seed is None else torch.Generator().manual_seed(seed),
    )
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()


def release(data, rng, seed=None):
    torch.manual_seed(int(rng.integers(2**31)))
    model, *rest = build(data, seed)
    train(model, *rest)
    return next(model.parameters()).detach().numpy().ravel().astype(float)


def program(seed=None):
    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=partial(release, seed=seed),
        parts={"opacus": {"build": partial(build, seed=seed), "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(2)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
without = TensorDataset(x * kept[:, None], y * kept)
KNOWN = release(without, np.random.default_rng(0), seed=7)[2]
CASE = Case(
    fault="noise",
    correct=program(),
    broken=program(seed=7),
    neighbours=(TensorDataset(x, y), without),
    source="https://github.com/meta-pytorch/opacus/blob/main/opacus/privacy_engine.py",
    ideal="the noise is a constant of the program",
    event=lambda weights: abs(weights[2] - KNOWN) < 1e-6,
    proof="without the record the last weight is a known number; with it, in one of sixteen runs",
    trials=200,
)
