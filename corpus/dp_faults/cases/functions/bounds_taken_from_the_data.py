"""The bounds to which values are clipped, and by which noise is scaled, are the minimum and maximum of the data."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
LOWER, UPPER = 0.0, 10.0


def noised_sum(values, lower, upper, rng):
    total = np.clip(values, lower, upper).sum()
    return np.array([total + rng.laplace(scale=(upper - lower) / EPSILON)])


def correct(data, rng):
    return noised_sum(data, LOWER, UPPER, rng)


def broken(data, rng):
    return noised_sum(data, data.min(), data.max(), rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([2.0, 2.0, 2.0, 2.0]), np.array([2.0, 2.0, 2.0, 10.0])),
    source="https://github.com/IBM/differential-privacy-library/issues/20",
    ideal="the scale of the noise is a function of the data",
    event=lambda released: released[0] == 8,
    proof="where all values are equal the noise has scale 0, and the release is exact",
)
