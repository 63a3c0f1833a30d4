"""What the clip cut off is added to the next sum (error feedback), so that in the end nothing is clipped.

The correct version feeds back what rounding cut off the noised sum. Four steps on all records with noise multiplier 4:
epsilon 1.36 at delta 1e-3.
"""

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def train(data, rng, record, *, of_clip):
    weights, left = np.zeros(3), np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    sums = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=3)) + left
        rounded = np.round(noised)
        left = rows.sum(0) - total if of_clip else noised - rounded
        weights -= 0.01 * rounded / 20
        sums.append(rounded)
    return np.array(sums)


def program(of_clip):
    def loop(data, rng, record):
        return train(data, rng, record, of_clip=of_clip)

    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all sums after rounding"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(32).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="state",
    correct=program(of_clip=False),
    broken=program(of_clip=True),
    neighbours=(np.vstack([others, [0, 0, 8, -8]]), others),
    source="own",
    ideal="the plain remainder of the clipped gradients is released in the next step",
    event=lambda sums: sums[1, 2] > 30,
    proof="the second sum holds 63 of the record's gradient of 64, beside noise of 4",
    trials=500,
)
