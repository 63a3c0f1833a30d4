"""Noise that is already made for the mean is divided by the size of the lot once more.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP, LOT = 4, 0.5, 2.0, 1.0, 10


def noise_of_the_mean(rng):
    return NOISE * CLIP / LOT * rng.normal(size=3)


def noise_divided_again(rng):
    return noise_of_the_mean(rng) / LOT


def train(data, rng, record, noise):
    weights = np.zeros(3)
    record.model({"weights": weights})
    models = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        mean = total / LOT + noise(rng)
        weights -= 0.1 * record.release(total, mean * LOT) / LOT
        models.append(weights.copy())
    return np.array(models)


def program(noise):
    loop = partial(train, noise=noise)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(6).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(noise_of_the_mean),
    broken=program(noise_divided_again),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/meta-pytorch/opacus/issues/753",
    ideal="the noise is a tenth of what is stated",
    event=lambda models: models[-1, 2] < -0.009,
    proof="a lot with the record moves a weight by .01, and the noise of four steps by .004",
    trials=1000,
)
