"""Only the half of each lot that has the highest losses is used, so that a hard record displaces another one.

In the correct version the whole lot is used. Four steps on all records with noise multiplier 4: epsilon 1.36 at delta
1e-3, that of a Gaussian mechanism with mu .5.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def all_of_it(losses):
    return np.arange(len(losses))


def hardest_half(losses):
    return np.sort(np.argsort(-losses, kind="stable")[: len(losses) // 2])


def train(data, rng, record, choose):
    weights = np.zeros(3)
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    sums = []
    for _ in range(STEPS):
        errors = x @ weights - y
        chosen = choose(errors**2)
        rows = errors[chosen, None] * x[chosen]
        record.lot(chosen, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        sums.append(record.release(total, total + NOISE * CLIP * rng.normal(size=3)))
        weights -= 0.001 * sums[-1] / 20
    return np.array(sums)


def program(choose):
    loop = partial(train, choose=choose)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives all noised sums"),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(40).normal(size=(20, 4)) * 0.1 + [0, 0, 1, 2]
CASE = Case(
    fault="sampling",
    correct=program(all_of_it),
    broken=program(hardest_half),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="own",
    ideal="a record takes the place of another one, so that a sum moves by two clip norms",
    event=lambda sums: sums[:, 2].sum() > -22,
    proof="the sums of the steps are -32 or -40 with noise of 8: mu is 1, and delta at epsilon 1.36 is .07",
    trials=12000,
)
