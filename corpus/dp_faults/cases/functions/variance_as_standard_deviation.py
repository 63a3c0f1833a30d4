"""The variance of the Gaussian noise is passed where its standard deviation is expected."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, DELTA = 0.9, 1e-5


def standard_deviation(sensitivity):
    return sensitivity * math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON


def correct(data, rng):
    """The number of records is public, and one record moves the mean by at most 1 / n."""
    sigma = standard_deviation(1 / len(data))
    return np.array([np.clip(data, 0, 1).mean() + rng.normal(scale=sigma)])


def broken(data, rng):
    sigma = standard_deviation(1 / len(data))
    return np.array([np.clip(data, 0, 1).mean() + rng.normal(scale=sigma**2)])


claim = Claim(epsilon=EPSILON, delta=DELTA)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.full(100, 0.5), np.append(np.full(99, 0.5), 1.0)),
    source="https://github.com/opendp/smartnoise-core/issues/316",
    ideal="the noise has standard deviation 0.0029 instead of 0.054",
    event=lambda released: released[0] > 0.503,
    proof="the means 0.5 and 0.505 are 1.7 standard deviations apart, so delta at epsilon 0.9 is 0.43",
)
