"""One seed is drawn for a call, and the noise of each column starts from it."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    """Rows in [0, 1]^3 move the sums by at most 3 in L1."""
    return np.clip(data, 0, 1).sum(axis=0) + rng.laplace(scale=3 / EPSILON, size=3)


def broken(data, rng):
    seed = rng.integers(2**32)
    sums = np.clip(data, 0, 1).sum(axis=0)
    return np.array([total + np.random.default_rng(seed).laplace(scale=3 / EPSILON) for total in sums])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([[0.0, 0.0, 0.0], [1.0, 0.5, 0.0]]), np.array([[0.0, 1.0, 0.0], [1.0, 0.5, 0.0]])),
    source="https://github.com/IBM/differential-privacy-library/issues/31",
    ideal="the noise cancels in the difference of two columns",
    event=lambda released: released[0] > released[1],
    trials=1500,
    proof="the difference of the first two sums is exact: 0.5 or -0.5, up to rounding",
)
