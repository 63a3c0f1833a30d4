"""Ten models are trained, and the best is published with the epsilon of one.

A model is a noised mean of a label, and the best is the one whose number is largest. The correct version composes ten.
"""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon

RUNS, NOISE_MULTIPLIER, DELTA = 10, 1.0, 0.01


def release(data, rng):
    models = np.clip(data, 0, 1).sum() + rng.normal(scale=NOISE_MULTIPLIER, size=RUNS)
    return np.array([models.max()])


def program(runs):
    claim = Claim(epsilon=gaussian_epsilon(runs**0.5 / NOISE_MULTIPLIER, DELTA), delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": 1.0, "steps": RUNS, "published": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(RUNS),
    broken=program(1),
    neighbours=(np.zeros(2), np.append(np.zeros(2), 1.0)),
    source="https://arxiv.org/abs/2110.03620",
    ideal="the choice among ten runs costs budget",
    event=lambda released: released[0] < 1.2,
    trials=8000,
    proof="the maximum is below 1.2 with 0.885^10 = 0.29 or 0.579^10 = 0.0042, a ratio of e^4",
)
