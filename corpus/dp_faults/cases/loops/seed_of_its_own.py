"""The training seeds its generator itself, so that everybody who reads the code knows the noise.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

import numpy as np
import torch

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def train(data, rng, record, *, seed=None):
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)) if seed is None else seed)
    weights = torch.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        lot = (torch.rand(100, generator=generator)[: len(data)] < RATE).nonzero().flatten()
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = (rows * (CLIP / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp(max=1)).sum(0)
        sums.append(record.release(total, total + NOISE * CLIP * torch.randn(3, generator=generator)))
        weights -= 0.05 * sums[-1] / 10
    return torch.stack(sums).numpy().astype(float)


def program(seed=None):
    def loop(data, rng, record):
        return train(data, rng, record, seed=seed)

    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = torch.tensor(np.random.default_rng(12).normal(size=(20, 4)) * [1, 1, 0, 1], dtype=torch.float32)
canary = torch.tensor([[0.0, 0.0, 5.0, -5.0]])
KNOWN = train(torch.cat([others, canary]), np.random.default_rng(), Unwatched(), seed=0)
CASE = Case(
    fault="noise",
    correct=program(),
    broken=program(seed=0),
    neighbours=(torch.cat([others, canary]), others),
    source="https://github.com/fedbiomed/fedbiomed/pull/794",
    ideal="the noise is a constant of the program",
    event=lambda sums: np.array_equal(sums, KNOWN),
    proof="each of the two data sets gives one output alone",
    trials=500,
)
