"""Lots of too few records are filled up to a fixed size with their own records, each of which counts several times.

Rows of zeros, as in the correct version, fill a lot as well. Four steps at rate .1 with noise multiplier 2: epsilon .28
at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP, SIZE = 4, 0.1, 2.0, 1.0, 32


def with_zeros(rows):
    return np.vstack([rows, np.zeros((SIZE - len(rows), rows.shape[1]))])


def with_its_records(rows):
    return rows[np.arange(SIZE) % len(rows)] if len(rows) else with_zeros(rows)


def train(data, rng, record, fill):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        filled = fill(rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(filled, axis=1), 1e-12)) @ filled
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=3)))
        weights -= 0.05 * sums[-1] / 2
    return np.array(sums)


def program(fill):
    loop = partial(train, fill=fill)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=0.28, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(17).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="sampling",
    correct=program(with_zeros),
    broken=program(with_its_records),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="own",
    ideal="one record counts up to 32 times in a sum whose noise is made for once",
    event=lambda sums: sums[:, 2].max() > 8,
    proof="in a lot of three the record moves the sum by 10 or more beside noise of 2",
    trials=1000,
)
