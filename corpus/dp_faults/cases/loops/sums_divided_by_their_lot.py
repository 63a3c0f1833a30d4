"""Sum and noise are divided by the number of records in the lot, which the size of the noise then shows.

The correct version divides by the expected number. Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta
1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP, EXPECTED = 4, 0.5, 2.0, 1.0, 1
FEATURES = 200


def expected(lot):
    return EXPECTED


def counted(lot):
    return max(len(lot), 1)


def train(data, rng, record, divisor):
    weights = np.zeros(FEATURES)
    record.model({"weights": weights})
    means = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :-1], data[lot, -1]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        means.append(record.release(total, total + NOISE * CLIP * rng.normal(size=FEATURES)) / divisor(lot))
        weights -= 0.001 * means[-1]
    return np.array(means)


def program(divisor):
    loop = partial(train, divisor=divisor)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised means"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


CASE = Case(
    fault="protocol",
    correct=program(expected),
    broken=program(counted),
    neighbours=(np.eye(2, FEATURES + 1), np.eye(1, FEATURES + 1)),
    source="https://github.com/meta-pytorch/opacus/issues/420",
    ideal="the noise is divided by the size of the lot, which nothing protects",
    event=lambda means: (np.std(means, axis=1) < 1.5).any(),
    proof="a lot of two records has noise of size 1, and any smaller one of size 2",
    trials=500,
)
