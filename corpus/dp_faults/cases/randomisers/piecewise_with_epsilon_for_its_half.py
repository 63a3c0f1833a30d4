"""The piecewise mechanism computes its interval from epsilon / 2 and its probability from epsilon."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.5
HALF = np.exp(EPSILON / 2)
BOUND = (HALF + 1) / (HALF - 1)


def randomise(value, central, rng):
    value = np.clip(value, -1, 1)
    left = (BOUND + 1) / 2 * value - (BOUND - 1) / 2
    if rng.random() < central:
        return np.array([left + (BOUND - 1) * rng.random()])
    outside = -BOUND + (BOUND + 1) * rng.random()
    return np.array([outside if outside < left else outside + BOUND - 1])


def correct(value, rng):
    return randomise(value, HALF / (HALF + 1), rng)


def broken(value, rng):
    return randomise(value, np.exp(EPSILON) / (np.exp(EPSILON) + 1), rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(-1.0, 1.0),
    source="https://arxiv.org/abs/1907.00229",
    ideal="the density inside over that outside is e^2.25",
    event=lambda released: released[0] < -1,
    trials=8000,
    proof="e^epsilon (BOUND + 1) / (BOUND - 1) = e^(3 epsilon / 2)",
)
