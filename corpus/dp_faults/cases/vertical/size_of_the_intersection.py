"""Two parties learn the exact number of records that they share."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
OURS = np.arange(0, 20)


def correct(theirs, rng):
    one, other = rng.geometric(1 - np.exp(-EPSILON), size=2)
    return np.array([float(len(np.intersect1d(OURS, theirs)) + one - other)])


def broken(theirs, rng):
    return np.array([float(len(np.intersect1d(OURS, theirs)))])


claim = Claim(epsilon=EPSILON, adjacency="add_remove", observer="the other party, which receives the size")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([3, 5, 40]), np.array([3, 5, 7, 40])),
    source="own",
    ideal="the size reveals whether a record is in the intersection",
    event=lambda released: released[0] == 2,
    proof="the size is a deterministic function of the data",
)
