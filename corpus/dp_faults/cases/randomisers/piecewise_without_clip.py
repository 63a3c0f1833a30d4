"""The piecewise mechanism receives values beyond [-1, 1], and its central interval leaves the range of the output."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 2.0
HALF = np.exp(EPSILON / 2)
BOUND = (HALF + 1) / (HALF - 1)


def randomise(value, rng):
    left = (BOUND + 1) / 2 * value - (BOUND - 1) / 2
    if rng.random() < HALF / (HALF + 1):
        return np.array([left + (BOUND - 1) * rng.random()])
    outside = -BOUND + (BOUND + 1) * rng.random()
    return np.array([outside if outside < left else outside + BOUND - 1])


def correct(value, rng):
    return randomise(np.clip(value, -1, 1), rng)


def broken(value, rng):
    return randomise(value, rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0.0, 3.0),
    source="https://arxiv.org/abs/1907.00229",
    ideal="values must be clipped to [-1, 1]: the report leaves its range",
    event=lambda released: released[0] > 2 * BOUND,
    proof="from inputs in [-1, 1] no report exceeds BOUND",
)
