"""Features are centred by the mean of the private records, so that one record moves the gradients of all.

The correct version subtracts the mean of public records. Four steps on all records with noise multiplier 4: epsilon
1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0
PUBLIC_MEAN = np.array([0.0, 0.1])


def by_public_mean(x):
    return x - PUBLIC_MEAN


def by_own_mean(x):
    return x - x.mean(0)


def train(data, rng, record, centred):
    weights = np.zeros(2)
    record.model({"weights": weights})
    x, y = centred(data[:, :2]), data[:, 2]
    models = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        weights -= 0.0005 * record.release(total, total + NOISE * CLIP * rng.normal(size=2))
        models.append(weights.copy())
    return np.array(models)


def program(centred):
    loop = partial(train, centred=centred)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.array([[0.0, 0.0, -6.0]] * 20)
CASE = Case(
    fault="preparation",
    correct=program(by_public_mean),
    broken=program(by_own_mean),
    neighbours=(np.vstack([others, [0, 2100, 0]]), others),
    source="https://arxiv.org/abs/2602.17454",
    ideal="one record shifts the features of all others before they are clipped",
    event=lambda models: models[-1, 1] > 0.03,
    proof="without the record all features are zero, and with it all twenty gradients are one clip norm long",
    trials=1000,
)
