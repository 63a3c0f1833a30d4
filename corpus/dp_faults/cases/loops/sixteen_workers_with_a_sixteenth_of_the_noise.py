"""Sixteen workers add noise to their part of the sum, each a sixteenth of the standard deviation.

A quarter each is right, since variances add up. Four steps on all records with noise multiplier 4: epsilon 1.36 at
delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP, WORKERS = 4, 4.0, 1.0, 16


def train(data, rng, record, share):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        total, noised = np.zeros(3), np.zeros(3)
        for part in np.array_split(np.arange(len(data)), WORKERS):
            x, y = data[part, :3], data[part, 3]
            rows = (x @ weights - y)[:, None] * x
            record.lot(part, rows)
            of_worker = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
            total += of_worker
            noised += of_worker + share * NOISE * CLIP * rng.normal(size=3)
        sums.append(record.release(total, noised))
        weights -= 0.02 * sums[-1] / 20
    return np.array(sums)


def program(share):
    loop = partial(train, share=share)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives the sums of all workers"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(13).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(1 / WORKERS**0.5),
    broken=program(1 / WORKERS),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/google-deepmind/optax/issues/148",
    ideal="the noise of the sum is a quarter of what is stated",
    event=lambda sums: sums[:, 2].sum() > 4,
    proof="four sums that a record moves by 1, beside noise of 1: a Gaussian mechanism with mu 2",
    trials=1000,
)
