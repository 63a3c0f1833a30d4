"""The clip norm is the median norm of the lot, and the noise follows it: one record moves both.

The correct version clips at the median norm of public data. Four steps on all records with noise multiplier 4:
epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, PUBLIC_NORMS = 4, 4.0, np.array([0.4, 1.0, 3.0])


def median_of_public_data(lengths):
    return np.median(PUBLIC_NORMS)


def median_of_the_lot(lengths):
    return np.median(lengths)


def train(data, rng, record, clip_norm):
    weights = np.zeros(2)
    record.model({"weights": weights})
    x, y = data[:, :2], data[:, 2]
    sums = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        lengths = np.linalg.norm(rows, axis=1)
        norm = clip_norm(lengths)
        total = np.minimum(1, norm / np.maximum(lengths, 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * norm * rng.normal(size=2)))
        weights -= 0.001 * sums[-1] / 20
    return np.array(sums)


def program(clip_norm):
    loop = partial(train, clip_norm=clip_norm)
    stated = {"noise_multiplier": NOISE, "clip_norm": 1.0, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


short, long = np.array([[0.1, 0, 0.1]] * 10), np.array([[0, 3.0, 3.0]] * 10)
CASE = Case(
    fault="clip",
    correct=program(median_of_public_data),
    broken=program(median_of_the_lot),
    neighbours=(np.vstack([short, short[:1], long]), np.vstack([short, long])),
    source="https://arxiv.org/abs/1905.03871",
    ideal="the clip norm and the size of the noise are functions of the lot that nothing protects",
    event=lambda sums: np.abs(sums).max() > 3,
    proof="the median is .01 with the record and 4.5 without it, and so is the size of the noise by 450 times",
    trials=1000,
)
