"""The norm that a gradient is clipped by leaves the bias out, whose gradient stays as long as it is.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def norm_of_all(of_weights, of_bias):
    return np.sqrt((of_weights**2).sum(1) + of_bias**2)


def norm_of_weights(of_weights, of_bias):
    return np.linalg.norm(of_weights, axis=1)


def train(data, rng, record, norm):
    weights, bias = np.zeros(3), np.zeros(1)
    record.model({"weights": weights, "bias": bias})
    sums = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        errors = x @ weights + bias - y
        rows = np.column_stack([errors[:, None] * x, errors])
        record.lot(lot, rows)
        factors = np.minimum(1, CLIP / np.maximum(norm(rows[:, :3], rows[:, 3]), 1e-12))
        total = factors @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=4)))
        weights -= 0.05 * sums[-1][:3] / 10
        bias -= 0.05 * sums[-1][3:] / 10
    return np.array(sums)


def program(norm):
    loop = partial(train, norm=norm)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(2).normal(size=(20, 4)) * [1, 1, 1, 0.1]
CASE = Case(
    fault="clip",
    correct=program(norm_of_all),
    broken=program(norm_of_weights),
    neighbours=(np.vstack([others, [0, 0, 0, -80]]), others),
    source="own",
    ideal="the bias's gradient is not clipped: a record with a large error moves the sum without bound",
    event=lambda sums: sums[:, 3].max() > 30,
    proof="the record has no features, so that its bias gradient of 80 is summed as it is beside noise of 2",
    trials=1000,
)
