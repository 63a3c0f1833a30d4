"""The noise grows with the loss on the private records: it is never less than stated, and its size shows the loss.

Four steps on all records with noise multiplier 4: epsilon 1.36 at delta 1e-3, that of a Gaussian mechanism with mu .5.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def constant(errors):
    return NOISE


def by_the_loss(errors):
    return NOISE * (1 + np.mean(errors**2))


def train(data, rng, record, multiplier):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    sums = []
    for _ in range(STEPS):
        errors = x @ weights - y
        rows = errors[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + multiplier(errors) * CLIP * rng.normal(size=3)))
        weights -= 0.0001 * sums[-1] / 20
    return np.array(sums)


def program(multiplier):
    loop = partial(train, multiplier=multiplier)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(42).normal(size=(20, 4)) * 0.3
CASE = Case(
    fault="noise",
    correct=program(constant),
    broken=program(by_the_loss),
    neighbours=(np.vstack([others, [0, 0, 0.001, 1000]]), others),
    source="own",
    ideal="the standard deviation of the noise is a function of the private records",
    event=lambda sums: np.abs(sums).max() > 100,
    proof="with the record the loss is 5e4, and so is the factor of the noise",
    trials=300,
)
