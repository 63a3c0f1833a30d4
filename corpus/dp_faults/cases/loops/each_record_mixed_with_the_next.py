"""Each record is mixed with the next one before its gradient is taken (mixup), so that it enters two gradients.

Four steps on all records with noise multiplier 4: epsilon 1.36 at delta 1e-3, that of a Gaussian mechanism with mu .5.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def train(data, rng, record, share):
    weights = np.zeros(3)
    record.model({"weights": weights})
    mixed = share * data + (1 - share) * np.roll(data, -1, axis=0)
    x, y = mixed[:, :3], mixed[:, 3]
    sums = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=3)))
        weights -= 0.001 * sums[-1] / 20
    return np.array(sums)


def program(share):
    loop = partial(train, share=share)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(41).normal(size=(20, 4)) * [0.1, 0.1, 0, 0.1]
CASE = Case(
    fault="preparation",
    correct=program(1.0),
    broken=program(0.7),
    neighbours=(np.vstack([others, [0, 0, 20, -20]]), others),
    source="own",
    ideal="a record enters two gradients, each of which is clipped alone: a sum moves by two clip norms",
    event=lambda sums: sums[:, 2].sum() > 18,
    proof="the sums of the steps are 8 or 0 with noise of 8: mu is 1, and delta at epsilon 1.36 is .07",
    trials=12000,
)
