"""A schedule lowers the noise multiplier in each step, and the optimizer lowers it once more.

The stated schedule is 6 * .8^step over four steps on all records: epsilon 1.34 at delta 1e-3, that of a Gaussian
mechanism with mu .495.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, CLIP = 4, 1.0
SCHEDULE = [6 * 0.8**step for step in range(STEPS)]


def once(step):
    return SCHEDULE[step]


def twice(step):
    return SCHEDULE[step] * 0.5**step


def train(data, rng, record, noise_multiplier):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    sums = []
    for step in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        noised = total + noise_multiplier(step) * CLIP * rng.normal(size=3)
        sums.append(record.release(total, noised, noise_multiplier=SCHEDULE[step]))
        weights -= 0.02 * sums[-1] / 20
    return np.array(sums)


def program(noise_multiplier):
    loop = partial(train, noise_multiplier=noise_multiplier)
    stated = {"noise_multiplier": SCHEDULE[0], "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.34, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(10).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(once),
    broken=program(twice),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="own",
    ideal="the noise of the last step is an eighth of what the schedule states",
    event=lambda sums: sums[3, 2] > 0.9,
    proof="the last sum alone is a Gaussian mechanism with noise multiplier .384",
)
