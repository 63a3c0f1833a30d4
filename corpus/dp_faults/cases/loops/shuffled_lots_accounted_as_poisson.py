"""Lots are the parts of a shuffled epoch, each record in exactly one, and are accounted as Poisson-sampled lots.

Ten lots at rate .1 with noise multiplier 1: epsilon 1.58 at delta 1e-3 for Poisson-sampled lots.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 10, 0.1, 1.0, 1.0


def poisson(rng, records):
    return [np.flatnonzero(rng.random(records) < RATE) for _ in range(STEPS)]


def shuffled(rng, records):
    return np.array_split(rng.permutation(records), STEPS)


def train(data, rng, record, lots):
    weights = np.zeros(1)
    record.model({"weights": weights})
    sums = []
    for lot in lots(rng, len(data)):
        x, y = data[lot, :1], data[lot, 1]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = (rows * np.minimum(1, CLIP / np.maximum(np.abs(rows), 1e-12))).sum(0)
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=1)))
        weights -= 0.01 * sums[-1]
    return np.array(sums)


def program(lots):
    loop = partial(train, lots=lots)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.58, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


data = np.array([[1.0, -3.0]] * 19 + [[1.0, 3.0]])
CASE = Case(
    fault="sampling",
    correct=program(poisson),
    broken=program(shuffled),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/tensorflow/privacy/issues/483",
    ideal="the accountant assumes Poisson-sampled lots, and these are shuffled",
    event=lambda sums: sums.min() < -1.9,
    proof="the sum of the record's lot is 0, or 1 without it, and of all others 2: below -1.9 with .0287 against .0023",
    trials=16000,
)
