"""Adam's second moment is made of plain sums, so that the size of each step shows them.

The correct version takes both moments from the noised sums. Four steps on all records with noise multiplier 4: epsilon
1.36 at delta 1e-3.
"""

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP, LEARNING_RATE = 4, 4.0, 1.0, 0.001


def train(data, rng, record, *, of_noised):
    weights, second = np.zeros(3), np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    models = []
    for step in range(1, STEPS + 1):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=3))
        second += 0.1 * ((noised if of_noised else total) ** 2 - second)
        weights -= LEARNING_RATE * noised / (np.sqrt(second / (1 - 0.9**step)) + 1e-3)
        models.append(weights.copy())
    return np.array(models)


def program(of_noised):
    def loop(data, rng, record):
        return train(data, rng, record, of_noised=of_noised)

    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(29).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="state",
    correct=program(of_noised=True),
    broken=program(of_noised=False),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/greenelab/SPRINT_gan/issues/5",
    ideal="the noised sum is divided by a function of the plain one",
    event=lambda models: np.abs(np.diff(models[:, 2])).max() > 0.1,
    proof="the divisor is 1 with the record and .001 without it, and a step a thousand times longer",
    trials=500,
)
