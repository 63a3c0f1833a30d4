"""The divisor is the true number of records, and is published with the configuration, under add/remove.

The correct version publishes a number that was fixed before the records were read. Four steps on all records with noise
multiplier 4: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def fixed(data):
    return 20


def counted(data):
    return len(data)


def train(data, rng, record, divisor):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        weights -= 0.01 * record.release(total, total + NOISE * CLIP * rng.normal(size=3)) / divisor(data)
    return np.array([*weights, divisor(data)])


def program(divisor):
    loop = partial(train, divisor=divisor)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.36,
            delta=1e-3,
            adjacency="add_remove",
            observer="whoever receives the last model and its settings",
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(35).normal(size=(20, 4))
CASE = Case(
    fault="protocol",
    correct=program(fixed),
    broken=program(counted),
    neighbours=(np.vstack([others, [0, 0, 0, 1]]), others),
    source="https://github.com/meta-pytorch/opacus/issues/571",
    ideal="the number of records is private under add/remove, and is released as it is",
    event=lambda seen: seen[3] == 21,
    proof="the published number is 21 with the record and 20 without it",
    trials=500,
)
