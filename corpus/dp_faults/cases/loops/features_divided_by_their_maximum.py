"""Features are divided by the largest number among the private records, which one record decides.

The correct version clamps features to a public range. Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at
delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def to_public_range(x):
    return np.clip(x, -2, 2) / 2


def by_largest(x):
    return x / np.abs(x).max()


def train(data, rng, record, scaled):
    weights = np.zeros(2)
    record.model({"weights": weights})
    features, targets = scaled(data[:, :2]), data[:, 2]
    sums = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = features[lot], targets[lot]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=2)))
        weights -= 0.01 * sums[-1] / 10
    return np.array(sums)


def program(scaled):
    loop = partial(train, scaled=scaled)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.array([[1.0, 0.0, -3.0]] * 20)
CASE = Case(
    fault="preparation",
    correct=program(to_public_range),
    broken=program(by_largest),
    neighbours=(np.vstack([others, [0, 1e6, 0]]), others),
    source="https://arxiv.org/abs/2602.17454",
    ideal="the bounds of the features are read from the private records",
    event=lambda sums: sums[:, 0].mean() > 5,
    proof="a record of 1e6 makes all other features vanish: sums of 0 in place of 10, beside noise of 2",
    trials=1000,
)
