"""Opacus divides noised sums by the number of records times the rate, and this number is private under add/remove.

The correct version sets a constant divisor. Four steps on all records with noise multiplier 4: epsilon 1.37 at delta
1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program

FEATURES = 200


def build(data, divisor=None):
    model = torch.nn.Linear(FEATURES, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=100),
        noise_multiplier=4.0,
        max_grad_norm=1.0,
    )
    if divisor:
        optimizer.expected_batch_size = divisor
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()


def program(divisor=None):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, divisor)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.37, delta=1e-3, adjacency="add_remove", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": partial(build, divisor=divisor), "train": train, "delta": 1e-3}},
    )


x, y = torch.eye(2, FEATURES), torch.zeros(2)
CASE = Case(
    fault="protocol",
    correct=program(divisor=2),
    broken=program(),
    neighbours=(TensorDataset(x, y), TensorDataset(x[:1], y[:1])),
    source="https://github.com/meta-pytorch/opacus/issues/571",
    ideal="the size of the noise shows the number of records",
    event=lambda weights: weights.std() < 0.06,
    proof="200 weights have noise of .04 with two records and of .08 with one",
    trials=200,
)
