"""A sum in single precision rounds after each addition, and one record decides how all later additions round.

All values are 2^23 or 2^23 + 1, so one record should move the sum by at most 1. The correct version adds integers.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
BASE = 2**23


def correct(data, rng):
    return np.array([int(np.sum(data)) - BASE * len(data) + rng.laplace(scale=1 / EPSILON)])


def broken(data, rng):
    total = np.float32(0)
    for value in data:
        total += np.float32(value)
    return np.array([float(total) - BASE * len(data) + rng.laplace(scale=1 / EPSILON)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.append(BASE, np.full(31, BASE + 1)), np.full(32, BASE + 1)),
    source="https://arxiv.org/abs/2207.10635",
    ideal="the sensitivity of the rounded sum grows with the number of records",
    event=lambda released: released[0] < 16,
    trials=2000,
    proof="the rounded sums lie 32 apart: the first value makes each later tie round down or up",
)
