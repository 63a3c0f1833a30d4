"""The noise is drawn before the loop, so that the difference of two sums has none.

Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def drawn_in_each_step(rng):
    return (NOISE * CLIP * rng.normal(size=3) for _ in range(STEPS))


def drawn_once(rng):
    noise = NOISE * CLIP * rng.normal(size=3)
    return (noise for _ in range(STEPS))


def train(data, rng, record, draws):
    weights = np.zeros(3)
    record.model({"weights": weights})
    sums = []
    for noise in draws(rng):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + noise))
        weights -= 0.05 * sums[-1] / 10
    return np.array(sums)


def program(draws):
    loop = partial(train, draws=draws)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(8).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="noise",
    correct=program(drawn_in_each_step),
    broken=program(drawn_once),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://arxiv.org/abs/2602.17454",
    ideal="all sums have the same noise: their differences are those of the plain sums",
    event=lambda sums: 0.5 < np.ptp(sums[:, 2]) < 1.5,
    proof="with the record two sums differ by 1 unless it is in all lots or in none; without it they are equal",
    trials=1000,
)
