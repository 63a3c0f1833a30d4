"""Of forty trainings the one with the least loss on the private records is released, at the epsilon of one.

The correct version takes the least loss on public records among trainings that are all accounted. One step on all
records: a Gaussian mechanism with mu .5, epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program

TRAININGS, NOISE, CLIP = 40, 2.0, 1.0
PUBLIC = np.random.default_rng(26).normal(size=(30, 4))


def loss(weights, data):
    return np.mean((data[:, :3] @ weights - data[:, 3]) ** 2)


def release(data, rng, multiplier, judged):
    weights = np.zeros((TRAININGS, 3))
    x, y = data[:, :3], data[:, 3]
    rows = -y[:, None] * x
    total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
    for one in weights:
        one -= 0.1 * (total + multiplier * CLIP * rng.normal(size=3))
    return min(weights, key=lambda one: loss(one, judged(data))).copy()


def program(multiplier, judged):
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives the chosen model"),
        release=partial(release, multiplier=multiplier, judged=judged),
    )


others = np.random.default_rng(27).normal(size=(20, 4)) * [0.01, 0.01, 0.01, 0.1]
CASE = Case(
    fault="accounting",
    correct=program(NOISE * TRAININGS**0.5, lambda data: PUBLIC),
    broken=program(NOISE, lambda data: data),
    neighbours=(np.vstack([others, [0, 0, 1, 1]]), others),
    source="https://arxiv.org/abs/2110.03620",
    ideal="the choice by the private loss is a release of its own, and forty trainings are accounted as one",
    event=lambda weights: weights[2] > 0.4,
    proof="the choice prefers a large weight with the record and none without it",
    trials=2000,
)
