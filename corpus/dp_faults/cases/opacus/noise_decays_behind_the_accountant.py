"""An optimizer of one's own divides the noise by ten in each step, and the accountant counts constant noise.

Four lots at rate .5 with noise multiplier 2: epsilon 1.64 at delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


class Decaying(DPOptimizer):
    factor = 1.0

    def add_noise(self):
        stated, self.noise_multiplier = self.noise_multiplier, self.noise_multiplier * self.factor
        super().add_noise()
        self.noise_multiplier, self.factor = stated, self.factor / 10


def build(data, kind):
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
    optimizer.__class__ = kind
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    engine.models = []
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()
            engine.models.append(next(model.parameters()).detach().clone())


def program(kind):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data, kind)
        train(model, optimizer, loader, engine)
        return torch.cat(engine.models).numpy().astype(float)

    return Program(
        claim=Claim(epsilon=1.64, delta=1e-3, adjacency="zero_out", observer="whoever receives the model of each step"),
        release=release,
        parts={"opacus": {"build": partial(build, kind=kind), "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(11)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="noise",
    correct=program(DPOptimizer),
    broken=program(Decaying),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/tree/main/opacus/schedulers",
    ideal="the noise of the last step is a thousandth of what the accountant counts",
    event=lambda models: 0.009 < models[-2, 2] - models[-1, 2] < 0.011,
    proof="the last step moves the weight by .01 in a lot with the record, and else by 2e-5",
    trials=200,
)
