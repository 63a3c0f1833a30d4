"""The claim is about the server, and the server receives plain sums and adds the noise itself.

In the correct version the client adds it before it sends. Four steps at rate .5 with noise multiplier 2: epsilon 1.63
at delta 1e-3.
"""

from functools import partial

import numpy as np

from dp_faults import Case, Claim, Program
from dp_faults.unwatched import Unwatched

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def noised_by_the_client(total, noised):
    return noised


def noised_by_the_server(total, noised):
    return total


def train(data, rng, record, sent):
    weights = np.zeros(3)
    record.model({"weights": weights})
    messages = []
    for _ in range(STEPS):
        lot = np.flatnonzero(rng.random(len(data)) < RATE)
        x, y = data[lot, :3], data[lot, 3]
        rows = (x @ weights - y)[:, None] * x
        record.lot(lot, rows)
        total = np.minimum(1, CLIP / np.maximum(np.linalg.norm(rows, axis=1), 1e-12)) @ rows
        noised = record.release(total, total + NOISE * CLIP * rng.normal(size=3))
        messages.append(sent(total, noised))
        weights -= 0.05 * noised / 10
    return np.array(messages)


def program(sent):
    loop = partial(train, sent=sent)
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.63, delta=1e-3, adjacency="add_remove", observer="the server, which receives all messages"
        ),
        release=lambda data, rng: loop(data, rng, Unwatched()),
        parts={"loop": {"train": loop, **stated}},
    )


others = np.random.default_rng(36).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="protocol",
    correct=program(noised_by_the_client),
    broken=program(noised_by_the_server),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), others),
    source="https://github.com/PaddlePaddle/PaddleFL/issues/154",
    ideal="the messages to the server have no noise",
    event=lambda messages: np.isin(messages[:, 2].round(6), (0, 1)).all() and messages[:, 2].any(),
    proof="a message is exactly 1 in a lot with the record and 0 otherwise",
    trials=500,
)
