"""The truth with heads, else the result of a second coin: epsilon is ln 3, and 1 is stated.

The correct version flips a coin of its own probability.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(value, rng):
    truthful = rng.random() < np.exp(EPSILON) / (1 + np.exp(EPSILON))
    return np.array([float(value if truthful else 1 - value)])


def broken(value, rng):
    first, second = rng.integers(2, size=2)
    return np.array([float(value if first else second)])


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0, 1),
    source="own",
    ideal="epsilon is ln 3 = 1.099",
    event=lambda released: released[0] == 0,
    trials=20000,
    proof="the answer is true with 3/4, so the ratio is 3",
)
