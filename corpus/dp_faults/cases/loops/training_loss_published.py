"""The mean loss on the private lot is published beside the noised sums, without noise.

The correct version publishes the loss on public records. Four steps at rate .5 with noise multiplier 2: epsilon 1.63 at
delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0
PUBLIC = np.random.default_rng(33).normal(size=(30, 4))


def of_public_records(lot):
    return PUBLIC


def of_the_lot(lot):
    return lot


def train(data, rng, record, measured):
    weights = np.zeros(3)
    record.model({"weights": weights})
    seen = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        records = measured(data[lot])
        loss = np.square(records[:, :3] @ weights - records[:, 3]).sum() / max(1, len(records))
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=3))
        weights -= 0.05 * noised / 10
        seen.append([*noised, loss])
    return np.array(seen)


def program(measured):
    loop = partial(train, measured=measured)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="whoever receives noised sums and losses"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(34).normal(size=(20, 4))
CASE = Case(
    fault="protocol",
    correct=program(of_public_records),
    broken=program(of_the_lot),
    neighbours=(np.vstack([others, [0, 0, 0, 100]]), others),
    source="https://github.com/google-deepmind/jax_privacy/issues/22",
    ideal="the published loss is a function of the private lot that nothing protects",
    event=lambda seen: seen[:, 3].max() > 100,
    proof="a lot with the record has a mean loss of 500 or more, any other one of about 1",
    trials=500,
)
