"""The learning rate follows the loss on the private lot, which no noise protects.

In the correct version it follows the loss on public records. Four steps at rate .5 with noise multiplier 2: epsilon
1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0
PUBLIC = np.random.default_rng(22).normal(size=(30, 4))


def loss_of_public_records(weights, x, y):
    return np.mean((PUBLIC[:, :3] @ weights - PUBLIC[:, 3]) ** 2)


def loss_of_the_lot(weights, x, y):
    return np.mean((x @ weights - y) ** 2) if len(x) else 0.0


def train(data, rng, record, loss):
    weights = np.zeros(3)
    record.model({"weights": weights})
    models = [weights.copy()]
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        learning_rate = 0.001 * loss(weights, x, y)
        weights -= learning_rate * record.release(total, total + NOISE * CLIP * rng.normal(size=3))
        models.append(weights.copy())
    return np.array(models)


def program(loss):
    loop = partial(train, loss=loss)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(23).normal(size=(20, 4)) * 0.3
CASE = Case(
    fault="state",
    correct=program(loss_of_public_records),
    broken=program(loss_of_the_lot),
    neighbours=(np.vstack([others, [0.001, 0, 0, 1000]]), others),
    source="own",
    ideal="the length of a step is a function of the private loss",
    event=lambda models: np.abs(np.diff(models, axis=0)).max() > 1,
    proof="in a lot with the record the loss is 1e5 and the step a hundred thousand times longer",
    trials=500,
)
