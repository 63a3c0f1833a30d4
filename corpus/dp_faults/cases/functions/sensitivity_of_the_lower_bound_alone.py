"""The sensitivity of a sum of squares is computed from the lower bound twice, instead of both bounds."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
LOWER, UPPER = -1.0, 3.0


def noised_squares(data, bounds, rng):
    sensitivity = np.max(np.abs(bounds)) ** 2
    return np.array([np.sum(np.clip(data, LOWER, UPPER) ** 2) + rng.laplace(scale=sensitivity / EPSILON)])


def correct(data, rng):
    """Squares of values in [-1, 3] lie in [0, 9]."""
    return noised_squares(data, [LOWER, UPPER], rng)


def broken(data, rng):
    return noised_squares(data, [LOWER, LOWER], rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.0, 1.0, 1.0]), np.array([3.0, 1.0, 1.0])),
    source="https://github.com/IBM/differential-privacy-library/pull/110",
    ideal="the sensitivity is 9, and the noise is scaled for 1",
    event=lambda released: released[0] > 6,
    proof="the sums are 9 apart and the noise has scale 1: epsilon is 9",
)
