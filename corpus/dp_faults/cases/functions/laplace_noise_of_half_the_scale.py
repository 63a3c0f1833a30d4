"""Laplace noise of half the scale: sensitivity 1 is divided by 2 epsilon.

A count of the records that fulfil a condition; one record moves it by at most 1.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    return np.array([np.sum(data > 0) + rng.laplace(scale=1 / EPSILON)])


def broken(data, rng):
    return np.array([np.sum(data > 0) + rng.laplace(scale=1 / (2 * EPSILON))])


claim = Claim(epsilon=EPSILON, adjacency="replace_one")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, 1.0, -1.0]), np.array([1.0, -1.0, -1.0])),
    source="own",
    ideal="epsilon is 2, because the noise has scale 0.5",
    event=lambda released: released[0] >= 2,
    proof="the ratio of the densities above 2 is e^2",
)
