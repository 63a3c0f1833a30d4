"""Geometric noise is drawn on one side only, so the noised count is never below the count."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    one, other = rng.geometric(1 - np.exp(-EPSILON), size=2)
    return np.array([np.sum(data) + float(one - other)])


def broken(data, rng):
    return np.array([np.sum(data) + float(rng.geometric(1 - np.exp(-EPSILON)) - 1)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1, 1, 0]), np.array([1, 1, 1])),
    source="own",
    ideal="a release of 2 shows that the count is not 3",
    event=lambda released: released[0] == 2,
    proof="2 has probability 1 - e^-1 at a count of 2 and probability 0 at a count of 3",
)
