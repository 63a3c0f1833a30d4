"""The epsilon of one epoch is stated for a training of twelve.

One step of all records is an epoch. With noise multiplier 4 its epsilon is .6 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

NOISE, CLIP, EPOCHS = 4.0, 1.0, 12


def train(data, rng, record, multiplier):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    models = []
    for _ in range(EPOCHS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        weights -= 0.02 * record.release(total, total + multiplier * CLIP * rng.normal(size=3)) / 20
        models.append(weights.copy())
    return np.array(models)


def program(multiplier, steps):
    loop = partial(train, multiplier=multiplier)
    stated = {"noise_multiplier": multiplier, "clip_norm": CLIP, "rate": 1.0, "steps": steps}
    return Program(
        claim=Claim(
            epsilon=0.6, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(19).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="accounting",
    correct=program(NOISE * EPOCHS**0.5, EPOCHS),
    broken=program(NOISE, 1),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/TsingZ0/PFLlib/issues/175",
    ideal="eleven of twelve steps are not accounted",
    event=lambda models: models[-1, 2] < -0.027,
    proof="twelve steps with noise multiplier 4: a Gaussian mechanism with mu .87",
)
