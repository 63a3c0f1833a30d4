"""A lot is a run of records in the order of the file, from a random place on, accounted as a Poisson-sampled lot.

The neighbours of a record in the file show in which lots it is, so that chance does not hide it. Eight steps at rate
.05 with noise multiplier 1: epsilon .7 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 8, 0.05, 1.0, 1.0


def poisson(rng, records):
    return np.flatnonzero(rng.random(records) < RATE)


def run_of_the_file(rng, records):
    return (rng.integers(records) + np.arange(round(RATE * records))) % records


def train(data, rng, record, draw):
    weights = np.zeros(2)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        lot = draw(rng, len(data))
        x, y = data[lot, :2], data[lot, 2]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=2)))
        weights -= 0.05 * sums[-1] / 10
    return np.array(sums)


def program(draw):
    loop = partial(train, draw=draw)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=0.7, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


around, far = np.array([[5.0, 0.0, -5.0]] * 9), np.zeros((190, 3))
with_record = np.vstack([around[:5], [[0.0, 5.0, -5.0]], around[5:], far])
without = with_record * (np.arange(200) != 5)[:, None]
CASE = Case(
    fault="sampling",
    correct=program(poisson),
    broken=program(run_of_the_file),
    neighbours=(with_record, without),
    source="own",
    ideal="lots are runs of the file: whoever knows the neighbours of a record knows its lots",
    event=lambda sums: ((sums[:, 0] > 6.5) & (sums[:, 1] > 2)).any(),
    proof="a lot whose first sum is above 6.5 holds the record: the second sum is above 2 with .16 against .023",
    trials=6000,
)
