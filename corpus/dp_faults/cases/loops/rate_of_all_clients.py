"""The stated rate is the lot over the records of all ten clients, while each lot is drawn from one client's records.

The true rate is .5 and the stated one .05. Four steps with noise multiplier 1: epsilon .53 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP, CLIENTS, LOT = 4, 1.0, 1.0, 10, 10
RECORDS = 20


def train(data, rng, record, rate):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < rate)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=3)))
        weights -= 0.05 * sums[-1] / LOT
    return np.array(sums)


def program(rate):
    loop = partial(train, rate=rate)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": LOT / (CLIENTS * RECORDS), "steps": STEPS}
    return Program(
        claim=Claim(epsilon=0.53, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(16).normal(size=(RECORDS, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="sampling",
    correct=program(LOT / (CLIENTS * RECORDS)),
    broken=program(LOT / RECORDS),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/meta-pytorch/opacus/issues/669",
    ideal="records are drawn ten times as often as stated",
    event=lambda sums: sums[:, 2].sum() > 3.5,
    proof="at the true rate of .5 epsilon is 4.48 at delta 1e-3",
)
