"""One coordinate of a vector is reported: the largest one, instead of one at random."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def report(vector, index, rng):
    """Return the index, and the sign of the rounded coordinate, flipped with probability 1 / (1 + e^epsilon)."""
    sign = 1.0 if rng.random() < (1 + vector[index]) / 2 else -1.0
    flip = rng.random() < 1 / (1 + np.exp(EPSILON))
    return np.array([float(index), -sign if flip else sign])


def correct(vector, rng):
    return report(vector, rng.integers(len(vector)), rng)


def broken(vector, rng):
    return report(vector, np.argmax(np.abs(vector)), rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives index and sign")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.9, 0.1, 0.0]), np.array([0.0, 0.1, 0.9])),
    source="own",
    ideal="the index is a deterministic function of the vector",
    event=lambda released: released[0] == 0,
    proof="the index is 0 for one vector and 2 for the other",
)
