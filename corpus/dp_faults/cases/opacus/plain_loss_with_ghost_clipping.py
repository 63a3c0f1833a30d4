"""Ghost clipping needs the loss that ``make_private`` returns; with the plain one nothing is clipped.

Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program

PLAIN = torch.nn.MSELoss()


def build(data):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, engine.loss, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=torch.nn.MSELoss(),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
    )
    return model, optimizer, loader, engine


def returned(engine):
    return engine.loss


def plain(engine):
    return PLAIN


def train(model, optimizer, loader, engine, loss):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss(engine)(model(x)[:, 0], y).backward()
            optimizer.step()


def program(loss):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data)
        train(model, optimizer, loader, engine, loss)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": build, "train": partial(train, loss=loss), "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(14)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 3.0]), -10000
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="clip",
    correct=program(returned),
    broken=program(plain),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/732",
    ideal="gradients are not clipped",
    event=lambda weights: weights[2] < -5,
    proof="a lot with the record moves the last weight by 50 or more, and the noise by .02",
    trials=200,
)
