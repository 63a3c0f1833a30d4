"""Whole parameters are saved, with the clipped and summed gradients of the last lot that Opacus keeps on them.

The correct version saves the noised gradients beside the weights. Four lots at rate .5 with noise multiplier 2: epsilon
1.64 at delta 1e-3.
"""

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


def train(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()


def program(saved):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data)
        train(model, *rest)
        parameter = next(model.parameters())
        return torch.cat([parameter.detach(), getattr(parameter, saved)]).numpy().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the saved parameters"),
        release=release,
        parts={"opacus": {"build": build, "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(13)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="protocol",
    correct=program("grad"),
    broken=program("summed_grad"),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="own",
    ideal="the saved file holds a sum of gradients without noise",
    event=lambda saved: abs(saved[1, 2] - 1) < 1e-3,
    proof="the last sum is 1 in a lot with the record and 0 in any other",
    trials=200,
)
