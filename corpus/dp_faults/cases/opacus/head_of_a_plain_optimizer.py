"""The body is trained by the private optimizer, and the head on top of it by a plain one on the same records.

The correct version trains the head on public records. Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at
delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program

LOSS = torch.nn.functional.mse_loss
PUBLIC = torch.randn(30, 3, generator=torch.Generator().manual_seed(3)), torch.ones(30)


def build(data):
    body = torch.nn.Linear(3, 2, bias=False)
    torch.nn.init.constant_(body.weight, 0.5)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=body,
        optimizer=torch.optim.SGD(body.parameters(), lr=0.01),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine, public):
    head = torch.ones(2, requires_grad=True)
    other = torch.optim.SGD([head], lr=0.01)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            LOSS(model(x) @ head.detach(), y).backward()
            optimizer.step()
            other.zero_grad()
            rows, targets = PUBLIC if public else (x, y)
            LOSS((rows @ model._module.weight.detach().T) @ head, targets).backward()
            other.step()
    engine.head = head.detach()


def program(public):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data)
        train(model, optimizer, loader, engine, public)
        return torch.cat([model._module.weight.detach().ravel(), engine.head]).numpy().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": build, "train": partial(train, public=public), "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(4)), torch.ones(20)
x[19], y[19] = 10, -1000
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="protocol",
    correct=program(public=True),
    broken=program(public=False),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="own",
    ideal="the head is trained on the private records without clip or noise",
    event=lambda weights: abs(weights[6:]).max() > 5,
    proof="each lot with the record moves the head by 30 or more, any other one by less than 1",
    trials=200,
)
