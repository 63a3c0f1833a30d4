"""The model has as many outputs as the private labels have classes, which one record decides.

In the correct version the number of classes is public. Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at
delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def public(labels):
    return 5


def counted(labels):
    return int(labels.max()) + 1


def build(data, classes):
    model = torch.nn.Linear(3, classes(torch.stack([data[index][1] for index in range(len(data))])), bias=False)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def program(classes):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, classes)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": partial(build, classes=classes), "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(8)), torch.arange(20) % 4
y[19] = 4
kept = torch.ones(20, dtype=torch.long).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="preparation",
    correct=program(public),
    broken=program(counted),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://arxiv.org/abs/2602.17454",
    ideal="the size of the model is a function of the private labels",
    event=lambda weights: len(weights) == 15,
    proof="the model has five outputs with the record and four without it",
    trials=200,
)
