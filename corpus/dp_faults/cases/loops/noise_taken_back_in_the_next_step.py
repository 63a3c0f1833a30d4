"""Each step takes back the last draw of noise, as correlated noise does, and is accounted as independent noise.

The sum of all steps holds the last draw alone. Ten steps on all records with noise multiplier 8, in the broken version
of two draws: epsilon 1.03 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 10, 8.0, 1.0


def independent(rng):
    while True:
        yield NOISE * CLIP * rng.normal(size=3)


def taken_back(rng):
    last = np.zeros(3)
    while True:
        drawn = NOISE / 2**0.5 * CLIP * rng.normal(size=3)
        yield drawn - last
        last = drawn


def train(data, rng, record, noise):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    draws, models = noise(rng), []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        weights -= 0.02 * record.release(total, total + next(draws)) / 20
        models.append(weights.copy())
    return np.array(models)


def program(noise):
    loop = partial(train, noise=noise)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.03, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(9).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(independent),
    broken=program(taken_back),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="own",
    ideal="the noise of the steps is correlated and adds up to one draw, so that the composed epsilon does not hold",
    event=lambda models: models[-1, 2] < -0.011,
    proof="ten steps move the last model by 10, and its noise is one draw of 5.7: a Gaussian mechanism with mu 1.77",
)
