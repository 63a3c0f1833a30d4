"""An optimizer of one's own divides the noise by the lot, and Opacus divides the noised sum once more.

Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program

LOT = 10


class OwnOptimizer(DPOptimizer):
    def add_noise(self):
        for one in self.params:
            noise = self.noise_multiplier * self.max_grad_norm * torch.randn_like(one)
            one.grad = one.summed_grad + noise / LOT


def build(data, kind):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(data, batch_size=LOT),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    optimizer.__class__ = kind
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()


def program(kind):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, kind)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": partial(build, kind=kind), "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="noise",
    correct=program(DPOptimizer),
    broken=program(OwnOptimizer),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/issues/753",
    ideal="the noise is a tenth of what the accountant counts",
    event=lambda weights: weights[2] < -0.045,
    proof="each lot with the record moves the last weight by .05, beside noise of .01 in a step",
    trials=200,
)
