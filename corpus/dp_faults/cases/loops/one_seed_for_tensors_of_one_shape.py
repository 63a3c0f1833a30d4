"""The generator is seeded anew for each tensor: tensors of one shape get equal noise, which their difference removes.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

import numpy as np
import torch

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def one_generator(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda: torch.randn(2, generator=generator)


def a_generator_for_each(seed):
    return lambda: torch.randn(2, generator=torch.Generator().manual_seed(seed))


def train(data, rng, record, generators):
    left, right = torch.zeros(2), torch.zeros(2)
    record.model({"left": left, "right": right})
    sums = []
    for _ in range(STEPS):
        draw = generators(int(rng.integers(2**31)))
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :4], data[lot, 4]
        rows = (x @ torch.cat([left, right]) - y)[:, None] * x
        record.lot(lot, rows)
        total = (rows * (CLIP / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp(max=1)).sum(0)
        sums.append(record.release(total, total + NOISE * CLIP * torch.cat([draw(), draw()])))
        left -= 0.005 * sums[-1][:2]
        right -= 0.005 * sums[-1][2:]
    return torch.stack(sums).numpy().astype(float)


def program(generators):
    def loop(data, rng, record):
        return train(data, rng, record, generators)

    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = torch.tensor(np.random.default_rng(14).normal(size=(20, 5)) * [1, 0, 1, 0, 1], dtype=torch.float32)
canary = torch.tensor([[0.0, 0.0, 0.0, 5.0, -5.0]])
CASE = Case(
    fault="noise",
    correct=program(one_generator),
    broken=program(a_generator_for_each),
    neighbours=(torch.cat([others, canary]), others),
    source="https://github.com/jax-ml/jax/pull/3646",
    ideal="two tensors have the same noise: their difference is that of the plain sums",
    event=lambda sums: ((sums[:, 3] - sums[:, 1]) > 0.5).any() and (np.abs(sums[:, 3] - sums[:, 1]) < 1.5).all(),
    proof="the difference of two coordinates is 1 in a lot with the record and 0 in any other",
    trials=500,
)
