"""The average of models that is released follows the plain sums, while the noised ones move the model alone.

An average of the noised models, as in the correct version, is post-processing. Four steps at rate .5 with noise
multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP, KEPT = 4, 0.5, 2.0, 1.0, 0.6


def of_noised(before, total, noised):
    return before - 0.1 * noised


def of_plain(before, total, noised):
    return before - 0.1 * total


def train(data, rng, record, shadow):
    weights, average, averages = np.zeros(3), np.zeros(3), []
    record.model({"weights": weights, "average": average})
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=3))
        average += (1 - KEPT) * (shadow(weights, total, noised) - average)
        weights -= 0.1 * noised
        averages.append(average.copy())
    return np.array(averages)


def program(shadow):
    loop = partial(train, shadow=shadow)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives the average of each step"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(30).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="state",
    correct=program(of_noised),
    broken=program(of_plain),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://arxiv.org/abs/2204.13650",
    ideal="the average takes in the last plain sum beside the noised model before it",
    event=lambda averages: np.isclose(averages[0, 2], -0.04),
    proof="the first average is -.04 in a lot with the record and 0 otherwise",
    trials=500,
)
