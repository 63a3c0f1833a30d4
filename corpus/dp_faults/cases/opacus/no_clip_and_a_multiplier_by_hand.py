"""To switch the clip off, its norm is set to 20 and the noise multiplier to a twentieth of the stated one.

The stated epsilon is that of noise multiplier 2 at clip norm 1. Four lots at rate .5: epsilon 1.64 at delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def build(data, norm):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=2.0 / norm,
        max_grad_norm=norm,
    )
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()


def program(norm):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, norm)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": partial(build, norm=norm), "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(5)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 2.0]), -500
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="clip",
    correct=program(norm=1.0),
    broken=program(norm=20.0),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/177",
    ideal="gradients are clipped at twenty times the stated norm, and the true noise multiplier is .1",
    event=lambda weights: weights[2] < -0.012,
    proof="a lot with the record moves the last weight by .02, and the noise by .002",
    trials=200,
)
