"""Adaptive clipping counts how many gradients are shorter than the clip norm, and this count loses its noise.

The correct version is Opacus' own. Four steps on all records with noise multiplier 4, which Opacus shares between sum
and count. Under zero-out a count moves by 1: a Gaussian mechanism with mu .61, epsilon 1.72 at delta 1e-3.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from opacus.optimizers import AdaClipDPOptimizer
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


class PlainCount(AdaClipDPOptimizer):
    def add_noise(self):
        count = self.unclipped_num
        super().add_noise()
        self.unclipped_num = count


def build(data, kind):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.001),
        data_loader=DataLoader(data, batch_size=20),
        noise_multiplier=4.0,
        max_grad_norm=1.0,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=100.0,
        min_clipbound=0.01,
        unclipped_num_std=5.0,
    )
    optimizer.__class__ = kind
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    engine.norms = []
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
            optimizer.step()
            engine.norms.append(float(optimizer.max_grad_norm))


def program(kind):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, optimizer, loader, engine = build(data, kind)
        train(model, optimizer, loader, engine)
        weights = next(model.parameters()).detach().ravel()
        return torch.cat([weights, torch.tensor(engine.norms)]).numpy().astype(float)

    observer = "whoever receives the last model and the clip norm of each step"
    return Program(
        claim=Claim(epsilon=1.72, delta=1e-3, adjacency="zero_out", observer=observer),
        release=release,
        parts={"opacus": {"build": partial(build, kind=kind), "train": train, "delta": 1e-3}},
    )


x = torch.cat([0.1 * torch.ones(10, 3), 9 * torch.ones(10, 3)])
y = torch.ones(20)
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="state",
    correct=program(AdaClipDPOptimizer),
    broken=program(PlainCount),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://arxiv.org/abs/1905.03871",
    ideal="the clip norm is a function of a count that nothing protects",
    event=lambda seen: abs(seen[3] - 1) < 1e-3,
    proof="ten of twenty gradients are short with the record, so that the norm stays 1, and eleven without it",
    trials=200,
)
