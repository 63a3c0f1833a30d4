"""Each record enters a lot in sixteen augmented copies, each of which is clipped alone.

The correct version averages over the copies inside of the model, before the clip. Four lots at rate .5 with noise
multiplier 2: epsilon 1.64 at delta 1e-3.
"""

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program

COPIES = 16


def augmented(x):
    """Sixteen copies of each row: ``(n, 16, 3)``."""
    return x[:, None] * torch.linspace(0.9, 1.1, COPIES)[:, None]


class Averaged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.zeros_(self.inner.weight)

    def forward(self, x):
        return self.inner(x).mean(1)[:, 0]


def build(data):
    model, engine = Averaged(), PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    return model, optimizer, loader, engine


def train_on_averages(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(augmented(x)), y).backward()
            optimizer.step()


def train_on_copies(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            rows = augmented(x).reshape(-1, 1, 3)
            torch.nn.functional.mse_loss(model(rows), y.repeat_interleave(COPIES)).backward()
            optimizer.step()


def program(train):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": build, "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(12)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="clip",
    correct=program(train_on_averages),
    broken=program(train_on_copies),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/461",
    ideal="one record moves a sum by 16 clip norms, where the noise is made for one",
    event=lambda weights: weights[2] < -0.05,
    proof="a lot with the record moves the last weight by .08, beside noise of .01",
    trials=200,
)
