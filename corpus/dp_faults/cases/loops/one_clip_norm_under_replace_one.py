"""The noise is made for one clip norm under replace-one, where a record can turn its gradient round: two norms.

Four steps on all records with noise multiplier 4 over the sensitivity: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def train(data, rng, record, sensitivity):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    sums = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * sensitivity * rng.normal(size=3)))
        weights -= 0.02 * sums[-1] / 20
    return np.array(sums)


def program(sensitivity):
    loop = partial(train, sensitivity=sensitivity)
    stated = {"noise_multiplier": NOISE * sensitivity / CLIP, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="replace_one", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(18).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="accounting",
    correct=program(2 * CLIP),
    broken=program(CLIP),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), np.vstack([others, [0, 0, 5, 5]])),
    source="https://github.com/meta-pytorch/opacus/issues/697",
    ideal="under replace-one a record moves the sum by 2 clip norms: the stated epsilon is one of add/remove",
    event=lambda sums: sums[:, 2].sum() > 13.6,
    proof="a Gaussian mechanism with mu 1: epsilon 3.14 at delta 1e-3",
    trials=6000,
)
