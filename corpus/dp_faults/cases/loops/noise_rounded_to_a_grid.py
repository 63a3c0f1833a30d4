"""The noise is rounded to whole numbers and the sum is not, so that its fraction stays.

The correct version rounds the noised sum. Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def noised_sum_rounded(total, noise):
    return np.round(total + noise)


def noise_rounded(total, noise):
    return total + np.round(noise)


def train(data, rng, record, add):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, add(total, NOISE * CLIP * rng.normal(size=3))))
        weights -= 0.01 * sums[-1] / 10
    return np.array(sums)


def program(add):
    loop = partial(train, add=add)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(37).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="numbers",
    correct=program(noised_sum_rounded),
    broken=program(noise_rounded),
    neighbours=(np.vstack([others, [0, 0, 0.5, -0.5]]), others),
    source="own",
    ideal="the fraction of the noised sum is that of the plain sum",
    event=lambda sums: (sums[:, 2] % 1 != 0).any(),
    proof="the sum is a whole number without the record, and has a fraction in each lot with it",
    trials=500,
)
