"""A step sums the gradients of two lots, each drawn anew, and is accounted as a step on one lot.

A record is in both lots with probability .25, and then enters the sum twice. The correct version splits one lot in two.
Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def one_lot(rng, records):
    return np.array_split(np.flatnonzero(rng.random(records) < RATE), 2)


def two_lots(rng, records):
    return [np.flatnonzero(rng.random(records) < RATE) for _ in range(2)]


def train(data, rng, record, lots):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for _ in range(STEPS):
        total = np.zeros(3)
        for lot in lots(rng, len(data)):
            x, y = data[lot, :3], data[lot, 3]
            rows = (x @ weights - y)[:, None] * x
            record.lot(lot, rows)
            total += np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=3)))
        weights -= 0.001 * sums[-1] / 20
    return np.array(sums)


def program(lots):
    loop = partial(train, lots=lots)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(43).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="sampling",
    correct=program(one_lot),
    broken=program(two_lots),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/meta-pytorch/opacus/issues/320",
    ideal="a record may enter a sum twice, and is drawn twice as often as was accounted",
    event=lambda sums: sums[:, 2].sum() > 10,
    proof="the sums of the steps are 4 on average or 0 with noise of 4: the event has probability .08 or .006",
    trials=16000,
)
