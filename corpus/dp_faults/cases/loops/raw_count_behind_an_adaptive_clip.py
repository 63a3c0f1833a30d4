"""The clip norm follows the share of clipped gradients, and this count has no noise of its own.

The correct version adds noise of 5 to each count and accounts for it. Four steps on all records, each with noise
multiplier 4 of the sum and 5 of the count: a Gaussian mechanism with mu .64, epsilon 1.8 at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, NOISE = 4, 4.0


def train(data, rng, record, noise_of_count):
    weights, norm = np.zeros(3), 1.0
    record.model({"weights": weights})
    x, y = data[:, :3], data[:, 3]
    seen = []
    for _ in range(STEPS):
        rows = (x @ weights - y)[:, None] * x
        record.lot(np.arange(len(data)), rows)
        lengths = np.linalg.norm(rows, axis=1)
        total = np.minimum(1, norm / np.maximum(lengths, 1e-12)) @ rows
        noised = record.release(total, total + NOISE * norm * rng.normal(size=3), clip_norm=norm)
        weights -= 0.02 * noised / 20
        share = ((lengths > norm).sum() + noise_of_count * rng.normal()) / 20
        seen.append([*weights, norm])
        norm *= np.exp(0.2 * (share - 0.5))
    return np.array(seen)


def program(noise_of_count):
    loop = partial(train, noise_of_count=noise_of_count)
    stated = {"noise_multiplier": NOISE, "clip_norm": 1.0, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.84,
            delta=1e-3,
            adjacency="add_remove",
            observer="whoever receives model and clip norm of each step",
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.array([[0.1, 0.0, 0.0, 0.1]] * 10 + [[0.0, 4.0, 0.0, 4.0]] * 10)
CASE = Case(
    fault="state",
    correct=program(noise_of_count=5.0),
    broken=program(noise_of_count=0.0),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/google-parfait/tensorflow-federated/issues/2211",
    ideal="the clip norm is a function of a count that nothing protects",
    event=lambda seen: seen[1, 3] > 1.005,
    proof="the second clip norm is exp(.01) with the record and 1 without it",
    trials=500,
)
