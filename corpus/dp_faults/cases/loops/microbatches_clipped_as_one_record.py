"""Means of pairs of records are clipped, and the noise is made for one clip norm under add/remove.

A record that is added at the front shifts all pairs. Four steps on all records with noise multiplier 4: epsilon 1.36 at
delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def shortened(rows):
    return rows * np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def clip_records(rows):
    return shortened(rows).sum(0)


def clip_pairs(rows):
    pairs = [rows[start : start + 2].mean(0) for start in range(0, len(rows), 2)]
    return shortened(np.array(pairs)).sum(0)


def train(data, rng, record, clip):
    weights = np.zeros(1)
    record.model({"weights": weights})
    x, y = data[:, :1], data[:, 1]
    models = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = clip(rows)
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=1))
        weights -= 0.01 * noised / 20
        models.append(weights.copy())
    return np.array(models)


def program(clip):
    loop = partial(train, clip=clip)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.array([[1.0, -3.0], [1.0, -3.0], [1.0, 1.0], [1.0, 1.0]] * 5)
CASE = Case(
    fault="clip",
    correct=program(clip_records),
    broken=program(clip_pairs),
    neighbours=(np.vstack([[1.0, -3.0], others]), others),
    source="https://github.com/tensorflow/privacy/issues/620",
    ideal="one record changes all pairs: it moves the sum by 9 clip norms, where the noise is made for one",
    event=lambda models: models[-1, 0] < -0.009,
    proof="the pairs cancel without the record, and nine more point up than down with it",
    trials=1000,
)
