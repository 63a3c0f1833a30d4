"""A layer of one's own centres features by the mean of the lot, which Opacus' validator does not know.

The correct version centres each record by itself. Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at delta
1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


class RecordCentred(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(1, keepdim=True)


class LotCentred(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def build(data, centred):
    model = torch.nn.Sequential(centred(), torch.nn.Linear(2, 1, bias=False))
    torch.nn.init.zeros_(model[1].weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.001),
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


def program(centred):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, centred)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": partial(build, centred=centred), "train": train, "delta": 1e-3}},
    )


x, y = torch.zeros(20, 2), -6 * torch.ones(20)
x[19], y[19] = torch.tensor([0.0, 2100.0]), 0
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="clip",
    correct=program(RecordCentred),
    broken=program(LotCentred),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/308",
    ideal="one record moves the gradients of all records of its lot",
    event=lambda weights: weights[1] > 0.0008,
    proof="each lot with the record has eight gradients of one clip norm, and any other one none",
    trials=400,
)
