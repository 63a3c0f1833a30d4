"""A value that is not a number passes the clip, and makes the whole release not a number."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    values = np.clip(np.nan_to_num(data, nan=0.0), 0, 1)
    return np.array([values.sum() + rng.laplace(scale=1 / EPSILON)])


def broken(data, rng):
    return np.array([np.clip(data, 0, 1).sum() + rng.laplace(scale=1 / EPSILON)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.2, 0.4, 0.6]), np.array([0.2, 0.4, np.nan])),
    source="https://github.com/IBM/differential-privacy-library/issues/80",
    ideal="a record with NaN is visible in the release; clip does not bound it",
    event=lambda released: bool(np.isnan(released[0])),
    proof="the release is NaN exactly where a record is",
)
