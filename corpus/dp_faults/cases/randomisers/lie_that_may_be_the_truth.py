"""With the probability of a lie, a value is drawn among all values, and it may be the true one.

The correct version draws among all values as well, and keeps the value with a smaller probability that accounts for
this.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
VALUES = 4


def randomise(value, keep, rng):
    return np.array([float(value if rng.random() < keep else rng.integers(VALUES))])


def correct(value, rng):
    return randomise(value, (np.exp(EPSILON) - 1) / (np.exp(EPSILON) + VALUES - 1), rng)


def broken(value, rng):
    return randomise(value, np.exp(EPSILON) / (np.exp(EPSILON) + VALUES - 1), rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0, 3),
    source="own",
    ideal="the true value is sent more often than the formula says: epsilon is 1.53",
    event=lambda released: released[0] == 0,
    proof="(keep + (1 - keep) / 4) / ((1 - keep) / 4) = 4.63 = e^1.53",
)
