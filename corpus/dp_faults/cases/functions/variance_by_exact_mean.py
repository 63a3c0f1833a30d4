"""A variance is computed around the exact mean, which is published beside it to reproduce the calculation."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    """Sums of values and of squares in [0, 1], each with half of epsilon; the number of records is public."""
    values = np.clip(data, 0, 1)
    first = values.sum() + rng.laplace(scale=2 / EPSILON)
    second = np.sum(values**2) + rng.laplace(scale=2 / EPSILON)
    mean = first / len(data)
    return np.array([mean, second / len(data) - mean**2])


def broken(data, rng):
    values = np.clip(data, 0, 1)
    return np.array([values.mean(), values.var() + rng.laplace(scale=1 / (len(data) * EPSILON))])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0, 0.0])),
    source="own",
    ideal="the mean is released without noise",
    event=lambda released: released[0] == 0.5,
    proof="the mean is a deterministic function of the data",
)
