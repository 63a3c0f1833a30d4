"""Noise is added to the plain sum, and the result is clipped: the direction of a long sum shows the record.

The right order clips each gradient first; to shorten the noised sum again is harmless. Four steps on all records with
noise multiplier 4: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def shortened(rows):
    return rows * np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12))


def as_they_are(rows):
    return rows


def train(data, rng, record, before):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    moves = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = before(rows).sum(0)
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=3))
        moves.append(shortened(noised))
        weights -= 0.05 * moves[-1]
    return np.array(moves)


def program(before):
    loop = partial(train, before=before)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all moves of the model"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(4).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="clip",
    correct=program(shortened),
    broken=program(as_they_are),
    neighbours=(np.vstack([others, [0, 0, 40, -40]]), others),
    source="https://github.com/epfml/disco/pull/317",
    ideal="the sum that is noised has no bound; the clip behind the noise only hides its length",
    event=lambda moves: (moves[:, 2] > 0.9).all(),
    proof="with the record every sum is 1600 along one axis, and noise of 4 does not turn it",
    trials=1000,
)
