"""Each tensor of the gradient is clipped to the whole norm: nine tensors together are three norms long.

Four steps on all records with noise multiplier 4: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP, TENSORS = 4, 4.0, 1.0, 9


def shortened(rows):
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows * np.minimum(1, CLIP / np.maximum(lengths, 1e-12))


def clip_gradients(rows):
    return shortened(rows).sum(0)


def clip_tensors(rows):
    return shortened(rows.reshape(-1, TENSORS, 2)).sum(0).ravel()


def train(data, rng, record, clip):
    weights = np.zeros(2 * TENSORS)
    record.model({f"layer{number}": weights[2 * number : 2 * number + 2] for number in range(TENSORS)})
    x, y = data[:, :-1], data[:, -1]
    sums = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        total = clip(rows)
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=total.shape)))
        weights -= 0.01 * sums[-1] / 20
    return np.array(sums)


def program(clip):
    loop = partial(train, clip=clip)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(0).normal(size=(20, 2 * TENSORS + 1))
others[:, 1::2] = 0
canary = np.array([[0.0, 3.0] * TENSORS + [-9.0]])
CASE = Case(
    fault="clip",
    correct=program(clip_gradients),
    broken=program(clip_tensors),
    neighbours=(np.vstack([others, canary]), others),
    source="https://github.com/fedbiomed/fedbiomed/issues/1443",
    ideal="one record moves the sum by 3 clip norms, where the noise is made for one",
    event=lambda sums: sums[:, 1::2].sum() > 50,
    proof="the record moves every sum by 3 along one direction: a Gaussian mechanism with mu 3 * 2 / 4",
    trials=4000,
)
