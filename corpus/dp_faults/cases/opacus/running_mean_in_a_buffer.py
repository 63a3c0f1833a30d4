"""A layer keeps a running mean of its inputs in a buffer, which is saved with the model.

In the correct version the buffer holds a public mean. Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at
delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


class Shifted(torch.nn.Module):
    def __init__(self, follows):
        super().__init__()
        self.follows = follows
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        if self.training and self.follows and len(x):
            self.mean += 0.1 * (x.detach().mean(0) - self.mean)
        return x - self.mean


def build(data, follows):
    model = torch.nn.Sequential(Shifted(follows), torch.nn.Linear(3, 1, bias=False))
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


def program(follows):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, follows)
        train(model, *rest)
        return torch.cat([one.ravel() for one in model.state_dict().values()]).numpy().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the saved model"),
        release=release,
        parts={"opacus": {"build": partial(build, follows=follows), "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(7)), torch.ones(20)
x[19] = 100
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="state",
    correct=program(follows=False),
    broken=program(follows=True),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/308",
    ideal="a saved buffer is a function of the private records that nothing protects",
    event=lambda saved: saved.max() > 0.5 and (saved[:3] > 0.4).all(),
    proof="each lot with the record moves the mean by about 1, and any other one by .03",
    trials=200,
)
