"""A sampler draws each class equally often, so that the only record of a class fills half of each lot.

The correct version lets Opacus replace the sampler. Four lots at rate .25 with noise multiplier 2: epsilon .8 at delta
1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from dp_faults import Case, Claim, Program


def build(data, poisson_sampling):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    labels = torch.tensor([int(data[index][1] < 0) for index in range(len(data))])
    weights = 1 / torch.bincount(labels, minlength=2).clamp_min(1)[labels]
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        data_loader=DataLoader(data, batch_size=10, sampler=WeightedRandomSampler(weights, len(data))),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        poisson_sampling=poisson_sampling,
    )
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
        optimizer.step()


def program(poisson_sampling):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, poisson_sampling)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    part = {"build": partial(build, poisson_sampling=poisson_sampling), "train": train, "delta": 1e-3}
    return Program(
        claim=Claim(epsilon=0.8, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": part},
    )


x, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(6)), torch.ones(40)
x[:, 2], x[39], y[39] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(40).index_fill(0, torch.tensor(39), 0)
CASE = Case(
    fault="sampling",
    correct=program(poisson_sampling=True),
    broken=program(poisson_sampling=False),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/600",
    ideal="the record is drawn about five times in each lot, and not once with probability .25",
    event=lambda weights: weights[2] < -0.05,
    proof="twenty draws of the record move the last weight by .1, beside noise of .02",
    trials=200,
)
