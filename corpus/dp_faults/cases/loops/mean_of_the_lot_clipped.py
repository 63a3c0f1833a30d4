"""The mean of the lot is clipped in place of each gradient, so that one record can turn it round.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP, LOT = 4, 0.5, 2.0, 1.0, 10


def shortened(rows):
    return rows * np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12))


def clip_each(rows):
    return shortened(rows).sum(0)


def clip_the_mean(rows):
    return LOT * shortened(rows.sum(0) / LOT)


def train(data, rng, record, clip):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = clip(rows)
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=3)))
        weights -= 0.05 * sums[-1] / LOT
    return np.array(sums)


def program(clip):
    loop = partial(train, clip=clip)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(1).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="clip",
    correct=program(clip_each),
    broken=program(clip_the_mean),
    neighbours=(np.vstack([others, [0, 0, 20, -20]]), others),
    source="https://github.com/tensorflow/privacy/issues/135",
    ideal="one record moves the sum by 10 clip norms, those of a lot, where the noise is made for one",
    event=lambda sums: sums[:, 2].max() > 6,
    proof="in a lot with this record the sum is 10 along its gradient, else 0, beside noise of 2",
    trials=1000,
)
