"""Lots are shuffled and of one size (``poisson_sampling=False``), and are accounted as Poisson-sampled lots.

Ten lots at rate .1 with noise multiplier 1: epsilon 1.59 at delta 1e-3 for Poisson-sampled lots.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def build(data, poisson_sampling):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=2, shuffle=True),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=poisson_sampling,
    )
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    engine.models = []
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        engine.models.append(next(model.parameters()).detach().clone().ravel())


def program(poisson_sampling):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data, poisson_sampling)
        train(model, optimizer, loader, engine)
        return torch.cat(engine.models).numpy().astype(float)

    part = {"build": partial(build, poisson_sampling=poisson_sampling), "train": train, "delta": 1e-3}
    return Program(
        claim=Claim(epsilon=1.59, delta=1e-3, adjacency="zero_out", observer="whoever receives the model of each step"),
        release=release,
        parts={"opacus": part},
    )


x, y = torch.ones(20, 1), -9 * torch.ones(20, 1)
y[19] = 9
kept = torch.ones(20, 1).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="sampling",
    correct=program(poisson_sampling=True),
    broken=program(poisson_sampling=False),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept, y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/80",
    ideal="the accountant assumes Poisson-sampled lots, and these are shuffled",
    event=None,
    proof="the sum of the record's lot is 0, or 1 without it, and of all nine others 2, each with noise 1: some sum is "
    "below -1.9 with probability .0287 against .0023, which is epsilon 2.48 at delta 1e-3",
)
