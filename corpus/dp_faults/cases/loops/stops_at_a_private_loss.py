"""The training stops as soon as the loss on the private records is below a bound.

The correct version takes public records. Six steps on all records with noise multiplier 6: epsilon 1.07 at delta
1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP, BOUND = 6, 6.0, 1.0, 5.0
PUBLIC = 3 * np.random.default_rng(24).normal(size=(30, 4))


def train(data, rng, record, judged):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    models = np.zeros((STEPS, 3))
    for step in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        weights -= 0.01 * record.release(total, total + NOISE * CLIP * rng.normal(size=3)) / 20
        models[step:] = weights
        records = judged(data)
        if np.mean((records[:, :3] @ weights - records[:, 3]) ** 2) < BOUND:
            break
    return models


def program(judged):
    loop = partial(train, judged=judged)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.07, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(25).normal(size=(20, 4))
CASE = Case(
    fault="state",
    correct=program(lambda data: PUBLIC),
    broken=program(lambda data: data),
    neighbours=(np.vstack([others, [0, 0, 0, 30]]), others),
    source="own",
    ideal="the number of steps is a function of the private loss",
    event=lambda models: (models[0] == models[-1]).all(),
    proof="the loss starts above 40 with the record, and at about 1 without it, which ends the training at once",
    trials=500,
)
