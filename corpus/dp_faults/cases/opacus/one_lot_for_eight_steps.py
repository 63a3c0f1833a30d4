"""Eight steps are made on the same lot and accounted as eight lots that were drawn one by one.

Eight lots at rate .1 with noise multiplier 2: epsilon .41 at delta 1e-3.
"""

from functools import partial
from itertools import islice

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


def eight_lots(loader):
    return islice(loader, 8)


def one_lot(loader):
    return list(islice(loader, 1)) * 8


def train(model, optimizer, loader, engine, lots):
    for x, y in lots(loader):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
        optimizer.step()


def program(lots):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data)
        train(model, optimizer, loader, engine, lots)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=0.41, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": build, "train": partial(train, lots=lots), "delta": 1e-3}},
    )


x, y = torch.randn(100, 3, generator=torch.Generator().manual_seed(15)), torch.ones(100)
x[:, 2], x[99], y[99] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(100).index_fill(0, torch.tensor(99), 0)
CASE = Case(
    fault="sampling",
    correct=program(eight_lots),
    broken=program(one_lot),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="own",
    ideal="one draw of a lot serves eight steps, and the accountant counts eight independent draws",
    event=None,
    proof="a lot holds the record with probability .1, and then moves eight sums: epsilon 1.60 at delta 1e-3",
)
