"""The noised sum is held in half precision, whose numbers near 8192 are eight apart and swallow the noise.

Rounding to bfloat16 after the noise, as in the correct version, is post-processing. Four steps on all records with
noise multiplier 2: epsilon 3.14 at delta 1e-3.
"""

from functools import partial

import torch

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 2.0, 1.0


def added_then_rounded(total, noise):
    return (total + noise).to(torch.bfloat16)


def rounded_then_added(total, noise):
    return total.half() + noise.half()


def train(data, rng, record, add):
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    weights = torch.zeros(1)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        rows = (data[:, :1] @ weights - data[:, 1])[:, None] * data[:, :1]
        record.lot(torch.arange(len(data)), rows)
        total = rows.clamp(-CLIP, CLIP).sum(0)
        sums.append(record.release(total, add(total, NOISE * CLIP * torch.randn(1, generator=generator)).float()))
        weights -= 1e-5 * sums[-1]
    return torch.stack(sums).numpy().astype(float)


def program(add):
    loop = partial(train, add=add)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=3.14, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = torch.tensor([[1.0, -9.0]] * 8196)
CASE = Case(
    fault="numbers",
    correct=program(added_then_rounded),
    broken=program(rounded_then_added),
    neighbours=(torch.cat([others, others[:1]]), others),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_mixed_precision.md",
    ideal="sums of half precision move by 8 where a record adds 1, and noise of 2 is mostly rounded away",
    event=lambda sums: sums.mean() > 8196,
    proof="8196 is rounded to 8192 and 8197 to 8200; the noise moves a sum by a step with probability .046",
    trials=500,
)
