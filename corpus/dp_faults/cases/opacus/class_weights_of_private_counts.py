"""The loss weighs classes by the private counts of their labels, which one record changes for all others.

In the correct version the weights are constant. Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at delta
1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def constant(labels):
    return torch.tensor([1.0, 1.0])


def of_counts(labels):
    """Inverse counts of the classes that occur, which add up to 1."""
    counts = torch.bincount(labels, minlength=2)
    weights = torch.where(counts > 0, 1 / counts, 0)
    return weights / weights.sum()


def build(data):
    model = torch.nn.Linear(1, 2, bias=False)
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


def train(model, optimizer, loader, engine, weigh):
    data = loader.dataset
    weights = weigh(torch.stack([data[index][1] for index in range(len(data))]))
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            (weights[y] * torch.nn.functional.cross_entropy(model(x), y, reduction="none")).mean().backward()
            optimizer.step()


def program(weigh):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data)
        train(model, optimizer, loader, engine, weigh)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": build, "train": partial(train, weigh=weigh), "delta": 1e-3}},
    )


x, y = 2 * torch.ones(20, 1), torch.zeros(20, dtype=torch.long)
x[19], y[19] = 0, 1
CASE = Case(
    fault="preparation",
    correct=program(constant),
    broken=program(of_counts),
    neighbours=(TensorDataset(x, y), TensorDataset(x, torch.zeros_like(y))),
    source="own",
    ideal="the weights of the loss are a function of the private labels",
    event=lambda weights: weights[0] > 0.14,
    proof="without the record the one class left has weight 1 and gradients of one clip norm; with it, of .07",
    trials=200,
)
