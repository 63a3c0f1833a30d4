"""The tenth of the records that is longest is left out: a further long record brings others back.

The correct version leaves out what is longer than a public bound. Four steps on all records with noise multiplier 4:
epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def below_a_public_bound(data):
    return np.linalg.norm(data[:, :2], axis=1) < 4


def below_a_quantile(data):
    lengths = np.linalg.norm(data[:, :2], axis=1)
    return lengths < np.sort(lengths)[-(len(data) // 10)]


def train(data, rng, record, kept):
    weights = np.zeros(2)
    record.model({"weights": weights})
    data = data[kept(data)]
    x, y = data[:, :2], data[:, 2]
    sums = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=2)))
        weights -= 0.01 * sums[-1] / 20
    return np.array(sums)


def program(kept):
    loop = partial(train, kept=kept)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.array([[1.0, 0.0, 0.0]] * 10 + [[0.0, 3.0, -3.0]] * 18 + [[0.0, 5.0, 0.0]] * 2)
CASE = Case(
    fault="preparation",
    correct=program(below_a_public_bound),
    broken=program(below_a_quantile),
    neighbours=(np.vstack([others, [0, 5, 0]]), others),
    source="own",
    ideal="which records are left out depends on all records: one more changes the part of many",
    event=lambda sums: sums[:, 1].sum() > 40,
    proof="the third longest record is 5 long with the record and 3 without it, and eighteen records are 3 long",
    trials=1000,
)
