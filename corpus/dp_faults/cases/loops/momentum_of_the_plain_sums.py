"""Momentum gathers the plain sums, and each step adds fresh noise to the buffer: old records count again and again.

Momentum of the noised sums, as in the correct version, is post-processing. Eight steps on all records with noise
multiplier 8: epsilon .9 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP, MOMENTUM = 8, 8.0, 1.0, 0.9


def after_the_noise(buffer, total, noise, release):
    noised = release(total, total + noise)
    buffer[:] = MOMENTUM * buffer + noised
    return buffer


def before_the_noise(buffer, total, noise, release):
    buffer[:] = MOMENTUM * buffer + total
    return release(total, buffer + noise)


def train(data, rng, record, gather):
    weights, buffer = np.zeros(3), np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    models = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        weights -= 0.01 * gather(buffer, total, NOISE * CLIP * rng.normal(size=3), record.release) / 20
        models.append(weights.copy())
    return np.array(models)


def program(gather):
    loop = partial(train, gather=gather)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=0.9, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(28).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="state",
    correct=program(after_the_noise),
    broken=program(before_the_noise),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="own",
    ideal="each noised vector holds all earlier sums, up to 5.7 clip norms of one record, beside noise for one",
    event=lambda models: models[-1, 2] < -0.0225,
    proof="the record moves the eight buffers by 1, 1.9, ... 5.7: a Gaussian mechanism with mu 1.36 or more",
)
