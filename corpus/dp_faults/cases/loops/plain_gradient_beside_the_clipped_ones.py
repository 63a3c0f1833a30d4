"""The backward pass leaves the plain gradient of the lot in place, and the noised sum of clipped ones is added to it.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

import numpy as np
import torch

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP, LOT = 4, 0.5, 2.0, 1.0, 10


def train(data, rng, record, *, cleared):
    weights = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.05)
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    record.model({"weights": weights})
    models = []
    for _ in range(STEPS):
        lot = torch.rand(len(data), generator=generator) < RATE
        x, y = data[lot, :3], data[lot, 3]
        optimizer.zero_grad()
        errors = x @ weights - y
        (errors.square().sum() / (2 * LOT)).backward()
        rows = errors.detach()[:, None] * x
        record.lot(lot.nonzero().flatten(), rows)
        total = (rows * (CLIP / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp(max=1)).sum(0)
        noised = record.release(total, total + NOISE * CLIP * torch.randn(3, generator=generator))
        if cleared:
            optimizer.zero_grad(set_to_none=False)
        weights.grad += noised / LOT
        optimizer.step()
        models.append(weights.detach().clone())
    return torch.stack(models).numpy().astype(float)


def program(cleared):
    def loop(data, rng, record):
        return train(data, rng, record, cleared=cleared)

    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = torch.tensor(np.random.default_rng(3).normal(size=(20, 4)) * [1, 1, 0, 1], dtype=torch.float32)
canary = torch.tensor([[0.0, 0.0, 5.0, -100.0]])
CASE = Case(
    fault="clip",
    correct=program(cleared=True),
    broken=program(cleared=False),
    neighbours=(torch.cat([others, canary]), others),
    source="https://github.com/dayu11/Differentially-Private-Deep-Learning/issues/7",
    ideal="gradients that are neither clipped nor noised move the model too",
    event=lambda models: models[:, 2].min() < -0.5,
    proof="the plain gradient of the record moves a weight by up to 2.5 in a step, the noise by .01",
    trials=400,
)
