"""Nine layers are clipped to norm 1 each, and the noise is that of norm 1 in place of 3.

Four lots at rate .5 with noise multiplier 4: epsilon .66 at delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program

LAYERS = 9


class Parallel(torch.nn.Module):
    """The sum of nine layers, one for each feature."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(LAYERS))
        for layer in self.layers:
            torch.nn.init.zeros_(layer.weight)

    def forward(self, x):
        return sum(layer(x[:, [number]]) for number, layer in enumerate(self.layers))[:, 0]


def build(data, norm=None):
    model, engine = Parallel(), PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=4.0,
        max_grad_norm=[1.0] * LAYERS,
        clipping="per_layer",
    )
    if norm is not None:
        optimizer.max_grad_norm = norm
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


def program(norm=None):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, norm)
        train(model, *rest)
        return torch.cat([one.detach().ravel() for one in model.parameters()]).numpy().astype(float)

    return Program(
        claim=Claim(epsilon=0.66, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": partial(build, norm=norm), "train": train, "delta": 1e-3}},
    )


x, y = torch.zeros(20, LAYERS), torch.zeros(20)
x[19], y[19] = 3, -30
CASE = Case(
    fault="noise",
    correct=program(),
    broken=program(norm=1.0),
    neighbours=(TensorDataset(x, y), TensorDataset(torch.zeros_like(x), torch.zeros_like(y))),
    source="https://github.com/meta-pytorch/opacus/issues/202",
    ideal="the sum moves by 3 where the noise is made for 1",
    event=None,
    proof="the record moves each sum by 3 beside noise of 4: noise multiplier 4/3, epsilon 2.89 at delta 1e-3",
)
