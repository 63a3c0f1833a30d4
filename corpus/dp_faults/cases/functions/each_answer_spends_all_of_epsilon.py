"""Four counts are each released with all of epsilon."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
AGES = [18, 30, 45, 65]


def counts(data):
    return np.array([np.sum(data >= age) for age in AGES], dtype=float)


def correct(data, rng):
    return counts(data) + rng.laplace(scale=len(AGES) / EPSILON, size=len(AGES))


def broken(data, rng):
    return counts(data) + rng.laplace(scale=1 / EPSILON, size=len(AGES))


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([20, 50, 70, 10]), np.array([20, 50, 70, 80])),
    source="own",
    ideal="the four counts overlap: together they cost 4 epsilon",
    event=lambda released: released.sum() > 11,
    proof="a replaced record moves all four counts: the ratio of the densities is e^4",
)
