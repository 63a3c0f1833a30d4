"""The training starts from weights that were fitted to the private records without protection.

The correct version starts from a fit to public records. Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at
delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0
PUBLIC = np.random.default_rng(20).normal(size=(30, 4))


def fit(data):
    return np.linalg.solve(data[:, :3].T @ data[:, :3] + np.eye(3), data[:, :3].T @ data[:, 3])


def fit_of_public_records(data):
    return fit(PUBLIC)


def fit_of_private_records(data):
    return fit(data)


def train(data, rng, record, start):
    weights = start(data).copy()
    record.model({"weights": weights})
    models = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        weights -= 0.05 * record.release(total, total + NOISE * CLIP * rng.normal(size=3)) / 10
        models.append(weights.copy())
    return np.array(models)


def program(start):
    loop = partial(train, start=start)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(21).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="preparation",
    correct=program(fit_of_public_records),
    broken=program(fit_of_private_records),
    neighbours=(np.vstack([others, [0, 0, 5, 5]]), others),
    source="own",
    ideal="the first model is a function of the private records that nothing protects",
    event=lambda models: models[0, 2] > 0.5,
    proof="the first weights are .96 with the record and 0 without it, beside noise of .01",
    trials=500,
)
