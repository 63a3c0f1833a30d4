"""A step is left out where the loss of its lot is high, and the model shows which steps were made.

The correct version leaves out every third step, by a public rule. Six steps at rate .5 with noise multiplier 2, of
which four are made and four accounted: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 6, 0.5, 2.0, 1.0


def every_third(step, losses):
    return step % 3 == 2


def of_high_loss(step, losses):
    return step >= 4 or losses.sum() > 100


def train(data, rng, record, left_out):
    weights = np.zeros(3)
    record.model({"weights": weights})
    models = [weights.copy()]
    for step in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        errors = x @ weights - y
        if not left_out(step, errors**2):
            rows = errors[:, None] * x
            record.lot(lot, rows)
            total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
            weights -= 0.05 * record.release(total, total + NOISE * CLIP * rng.normal(size=3)) / 10
        models.append(weights.copy())
    return np.array(models)


def program(left_out):
    loop = partial(train, left_out=left_out)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": 4}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(31).normal(size=(20, 4))
CASE = Case(
    fault="state",
    correct=program(every_third),
    broken=program(of_high_loss),
    neighbours=(np.vstack([others, [0, 0, 0.1, 30]]), others),
    source="own",
    ideal="whether a step is made depends on the private loss",
    event=lambda models: (models[:4] == models[1:5]).all(axis=1).any(),
    proof="a lot with the record makes no step, and the model then stays as it is",
    trials=500,
)
