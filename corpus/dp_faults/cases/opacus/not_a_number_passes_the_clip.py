"""A record that is not a number makes its gradient one, which the clip does not bound: the model shows it.

The correct version replaces such numbers by zero and clamps all others. Four lots at rate .5 with noise multiplier 2:
epsilon 1.64 at delta 1e-3.
"""

from functools import partial

import numpy as np
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def build(data):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    return model, optimizer, loader, engine


def bounded(x):
    return x.nan_to_num(0.0).clamp(-10, 10)


def as_it_is(x):
    return x


def train(model, optimizer, loader, engine, read):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(read(x))[:, 0], y).backward()
            optimizer.step()


def program(read):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data)
        train(model, optimizer, loader, engine, read)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": build, "train": partial(train, read=read), "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(17)), torch.ones(20)
x[19], y[19] = 0, 0
with_nan = x.clone()
with_nan[19, 0] = torch.nan
CASE = Case(
    fault="numbers",
    correct=program(bounded),
    broken=program(as_it_is),
    neighbours=(TensorDataset(with_nan, y), TensorDataset(x, y)),
    source="https://github.com/google/differential-privacy/pull/405",
    ideal="a gradient that is not a number is not bounded by the clip",
    event=lambda weights: np.isnan(weights).any(),
    proof="the model is not a number after a lot with the record, and is one without it",
    trials=200,
)
