"""Gradients on a grid of whole numbers are summed in eight bits, where 127 plus 1 is -128.

The correct version sums in 64 bits. Four steps on all records, whose rows are whole numbers of at most 10, with noise
multiplier 2 of this clip norm: epsilon 3.14 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 2.0, 10.0


def train(data, rng, record, dtype):
    weights = np.zeros(1)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        rows = (data[:, :1] @ weights - data[:, 1])[:, None] * data[:, :1]
        record.lot(np.arange(len(data)), rows)
        whole = np.clip(np.trunc(rows), -CLIP, CLIP).astype(dtype)
        total = whole.sum(0, dtype=dtype).astype(float)
        sums.append(record.release(total, np.round(total + NOISE * CLIP * rng.normal(size=1))))
        weights -= 0.0001 * sums[-1]
    return np.array(sums)


def program(dtype):
    loop = partial(train, dtype=dtype)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=3.14, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.array([[1.0, -99.0]] * 12)
CASE = Case(
    fault="numbers",
    correct=program(np.int64),
    broken=program(np.int8),
    neighbours=(np.vstack([others, others[:1]]), others),
    source="https://arxiv.org/abs/2207.10635",
    ideal="one record moves the sum by 246, because it wraps, where the noise is made for 10",
    event=lambda sums: sums.mean() < 0,
    proof="twelve rows of 10 add up to 120, and thirteen to -126",
    trials=500,
)
