"""Lots are made of records of like length, so that the length of one record decides who shares a lot with whom.

Ten lots at rate .1 with noise multiplier 1: epsilon 1.59 at delta 1e-3 for Poisson-sampled lots.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def by_length(data):
    order = sorted(range(len(data)), key=lambda index: float(data[index][0].norm()))
    return DataLoader(data, batch_sampler=[order[start : start + 2] for start in range(0, len(order), 2)])


def build(data, sorted_lots):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=by_length(data) if sorted_lots else DataLoader(data, batch_size=2),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=not sorted_lots,
    )
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    engine.models = [next(model.parameters()).detach().clone().ravel()]
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        engine.models.append(next(model.parameters()).detach().clone().ravel())


def program(sorted_lots):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data, sorted_lots)
        train(model, optimizer, loader, engine)
        return torch.cat(engine.models).numpy().astype(float)

    return Program(
        claim=Claim(epsilon=1.59, delta=1e-3, adjacency="zero_out", observer="whoever receives the model of each step"),
        release=release,
        parts={"opacus": {"build": partial(build, sorted_lots=sorted_lots), "train": train, "delta": 1e-3}},
    )


x = torch.linspace(1, 2, 20)[:, None]
y = -9.0 * torch.tensor([1.0, 1.0, -1.0, -1.0] * 5)[:, None]
kept = torch.ones(20, 1).index_fill(0, torch.tensor(19), 0)
signs = (-1.0) ** torch.arange(10).numpy()
CASE = Case(
    fault="sampling",
    correct=program(sorted_lots=False),
    broken=program(sorted_lots=True),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept, y * kept)),
    source="own",
    ideal="lots are not drawn at random, and one record moves all of them",
    event=lambda models: signs @ (models[:-1] - models[1:]) / 0.005 > 10,
    proof="the sums of the lots are 2, -2, 2, ... with the record and 1, 0, 0, ... without it, beside noise of 1",
    trials=200,
)
