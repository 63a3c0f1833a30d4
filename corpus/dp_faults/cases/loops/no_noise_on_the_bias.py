"""The loop that adds noise runs over matrices alone and leaves vectors, such as the bias, as they are.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

import numpy as np
import torch

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def train(data, rng, record, *, least_dimensions):
    layer = torch.nn.Linear(3, 1)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    record.model(dict(layer.named_parameters()))
    models = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        errors = layer(x).detach()[:, 0] - y
        rows = torch.cat([errors[:, None] * x, errors[:, None]], dim=1)
        record.lot(lot, rows)
        total = (rows * (CLIP / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp(max=1)).sum(0)
        noise = [
            NOISE * CLIP * torch.randn(one.shape, generator=generator) * (one.ndim >= least_dimensions)
            for one in layer.parameters()
        ]
        noised = record.release(total, total + torch.cat([one.flatten() for one in noise]))
        with torch.no_grad():
            layer.weight -= 0.05 * noised[None, :3] / 10
            layer.bias -= 0.05 * noised[3:] / 10
        models.append(torch.cat([one.detach().flatten() for one in layer.parameters()]))
    return torch.stack(models).numpy().astype(float)


def program(least_dimensions):
    def loop(data, rng, record):
        return train(data, rng, record, least_dimensions=least_dimensions)

    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = torch.zeros(20, 4)
canary = torch.tensor([[0.0, 0.0, 0.0, 5.0]])
CASE = Case(
    fault="noise",
    correct=program(least_dimensions=1),
    broken=program(least_dimensions=2),
    neighbours=(torch.cat([others, canary]), others),
    source="own",
    ideal="the bias is released without noise",
    event=lambda models: 0 < models[-1, 3] < 0.021,
    proof="the bias stays 0 without the record, and moves by .005 in each lot with it",
    trials=400,
)
