"""The gradient is multiplied by the learning rate once and the noise twice.

Five steps on all records with noise multiplier 5: epsilon 1.19 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP, LEARNING_RATE = 5, 5.0, 1.0, 0.1


def add_then_multiply(total, noise):
    return LEARNING_RATE * (total + noise)


def multiply_and_add(total, noise):
    return LEARNING_RATE * (total + LEARNING_RATE * noise)


def train(data, rng, record, update):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    models = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        move = update(total, NOISE * CLIP * rng.normal(size=3))
        weights -= LEARNING_RATE * record.release(total, move / LEARNING_RATE) / 20
        models.append(weights.copy())
    return np.array(models)


def program(update):
    loop = partial(train, update=update)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.19, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(7).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(add_then_multiply),
    broken=program(multiply_and_add),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/google-deepmind/optax/pull/369",
    ideal="the noise is a tenth of what is stated",
    event=lambda models: models[-1, 2] < -0.0125,
    proof="the record moves a weight by .025 in five steps, and the noise by .0056",
    trials=1000,
)
