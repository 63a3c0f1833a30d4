"""The noise is uniform, with the variance of the stated Gaussian noise: sums beyond its range show the record.

Two steps at rate .5 with noise multiplier 2: epsilon 1.13 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 2, 0.5, 2.0, 1.0


def gaussian(rng):
    return NOISE * CLIP * rng.normal(size=3)


def uniform(rng):
    return NOISE * CLIP * rng.uniform(-(3**0.5), 3**0.5, size=3)


def train(data, rng, record, noise):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + noise(rng)))
        weights -= 0.05 * sums[-1] / 10
    return np.array(sums)


def program(noise):
    loop = partial(train, noise=noise)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.13, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(11).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(gaussian),
    broken=program(uniform),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="own",
    ideal="the noise is bounded: some sums are possible with the record alone, so that no epsilon holds at delta 1e-3",
    event=lambda sums: sums[:, 2].max() > NOISE * 3**0.5,
    proof="a sum above 3.46 is impossible without the record, and has probability .14 with it",
    trials=2000,
)
