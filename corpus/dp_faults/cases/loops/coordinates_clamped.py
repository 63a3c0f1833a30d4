"""Each coordinate of a gradient is clamped to the clip norm, so that sixteen coordinates are four norms long.

Four steps at rate .5 with noise multiplier 4: epsilon .65 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP, FEATURES = 4, 0.5, 4.0, 1.0, 16


def clip_by_norm(rows):
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1, CLIP / np.maximum(lengths, 1e-12))


def clip_by_value(rows):
    return np.clip(rows, -CLIP, CLIP)


def train(data, rng, record, clip):
    weights = np.zeros(FEATURES)
    record.model({"weights": weights})
    models = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :-1], data[lot, -1]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = clip(rows).sum(0)
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=FEATURES))
        weights -= 0.02 * noised / (20 * RATE)
        models.append(weights.copy())
    return np.array(models)


def program(clip):
    loop = partial(train, clip=clip)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=0.65, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.zeros((20, FEATURES + 1))
canary = np.append(np.ones(FEATURES), 30.0)
CASE = Case(
    fault="clip",
    correct=program(clip_by_norm),
    broken=program(clip_by_value),
    neighbours=(np.vstack([others, canary]), others),
    source="https://pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_value_.html",
    ideal="one record moves the sum by 4 clip norms, where the noise is made for one",
    event=lambda models: models[-1].sum() > 0.13,
    proof="the record moves a sum by 4, each noise multiplier is 1 in truth: epsilon 4.48 at delta 1e-3",
)
