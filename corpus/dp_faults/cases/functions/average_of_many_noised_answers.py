"""The noised answer is drawn twenty-five times, and the average is released."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def noised(data, rng):
    return np.sum(data > 0) + rng.laplace(scale=1 / EPSILON)


def correct(data, rng):
    return np.array([noised(data, rng)])


def broken(data, rng):
    return np.array([np.mean([noised(data, rng) for _ in range(25)])])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, -1.0]), np.array([1.0, 1.0])),
    source="own",
    ideal="the average has a fifth of the noise's standard deviation",
    event=lambda released: released[0] > 1.6,
    proof="the average of 25 draws has standard deviation 0.28, and the neighbours are 1 apart",
)
