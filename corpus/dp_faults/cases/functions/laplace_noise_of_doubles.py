"""Laplace noise is a logarithm of a double, and its low bits reveal the exact count.

The correct version adds integer noise to the integer count.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
STEP = 2.0**-53


def correct(data, rng):
    one, other = rng.geometric(1 - np.exp(-EPSILON), size=2)
    return np.array([np.sum(data) + float(one - other)])


def broken(data, rng):
    noise = -np.log(1 - rng.random()) / EPSILON
    return np.array([np.sum(data) + noise * rng.choice([-1.0, 1.0])])


def event(released):
    """The value is not that of any draw of noise around a count of 0."""
    value = abs(released[0])
    near = np.round(np.exp(-value) / STEP) + np.arange(-64, 65)
    near = near[(near > 0) & (near <= 1 / STEP)] * STEP
    return not np.any(-np.log(near) == value)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 0]), np.array([0, 1, 0])),
    source="https://www.microsoft.com/en-us/research/wp-content/uploads/2012/10/lsbs.pdf",
    ideal="the release can only take values that one of the two counts can produce",
    event=event,
    trials=1000,
    proof="the noise takes at most 2^54 values; around a count of 1 many of them cannot come from a count of 0",
)
