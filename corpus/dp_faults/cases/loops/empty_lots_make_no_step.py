"""A step is left out where its lot is empty, and the number of steps is seen.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def train(data, rng, record, *, skips):
    weights = np.zeros(3)
    record.model({"weights": weights})
    models = [weights.copy()]
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        if len(lot) or not skips:
            x, y = data[lot, :3], data[lot, 3]
            rows = (x @ weights - y)[:, None] * x
            record.lot(lot, rows)
            total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
            weights -= 0.05 * record.release(total, total + NOISE * CLIP * rng.normal(size=3))
        models.append(weights.copy())
    return np.array(models)


def program(skips):
    loop = partial(train, skips=skips)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


CASE = Case(
    fault="sampling",
    correct=program(skips=False),
    broken=program(skips=True),
    neighbours=(np.array([[0.0, 0.0, 1.0, 1.0]]), np.zeros((0, 4))),
    source="https://github.com/meta-pytorch/opacus/pull/164",
    ideal="whether a step is made depends on the lot: with no records there is none, with one in half of the steps",
    event=lambda models: (np.diff(models, axis=0) != 0).any(),
    proof="the model never moves without the record, and with it moves with probability .94",
    trials=500,
)
