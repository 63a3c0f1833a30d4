"""The noise has the standard deviation noise multiplier, where it should be noise multiplier times clip norm.

The clip norm is 5. Four steps on all records with noise multiplier 8: epsilon .6 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 8.0, 5.0


def train(data, rng, record, scale):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    sums = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + scale * rng.normal(size=3)))
        weights -= 0.005 * sums[-1] / 20
    return np.array(sums)


def program(scale):
    loop = partial(train, scale=scale)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=0.6, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(5).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(NOISE * CLIP),
    broken=program(NOISE),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/meta-pytorch/opacus/issues/11",
    ideal="the noise is a fifth of what is stated",
    event=lambda sums: sums[:, 2].sum() > 30,
    proof="four sums that a record moves by 5, beside noise of 8: a Gaussian mechanism with mu 1.25",
)
