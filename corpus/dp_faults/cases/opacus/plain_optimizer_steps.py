"""The optimizer that Opacus wraps makes the steps, with the plain gradients of the backward pass.

Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at delta 1e-3.
"""

from functools import partial

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


def private(optimizer):
    return optimizer


def wrapped(optimizer):
    return optimizer.original_optimizer


def train(model, optimizer, loader, engine, stepping):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            stepping(optimizer).step()


def program(stepping):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data)
        train(model, optimizer, loader, engine, stepping)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": build, "train": partial(train, stepping=stepping), "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(9)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 1.0]), -100
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="noise",
    correct=program(private),
    broken=program(wrapped),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/lxuechen/private-transformers/issues/9",
    ideal="the model moves by plain gradients; the private optimizer is never stepped, nor its accountant",
    event=lambda weights: weights[2] < -0.5,
    proof="the last weight is exactly 0 without the record, and moves by 1.5 or more in a lot with it",
    trials=200,
)
