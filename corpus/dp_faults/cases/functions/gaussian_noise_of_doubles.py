"""The sum of an integer and Gaussian noise has the precision of the larger one, which reveals the integer.

The correct version draws from the discrete Gaussian law; its tail beyond 50 is far below delta.
"""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA = 4.0
STEPS = np.arange(-50, 51)
LAW = np.exp(-(STEPS**2) / (2 * SIGMA**2))
LAW /= LAW.sum()


def correct(data, rng):
    return np.array([float(np.sum(data) + rng.choice(STEPS, p=LAW))])


def broken(data, rng):
    return np.array([np.sum(data) + rng.normal(scale=SIGMA)])


def event(released):
    """A value next to 0 that is finer than the grid of doubles next to 1."""
    value = released[0]
    return 0 < abs(value) < 0.5 and value * 2.0**53 != np.floor(value * 2.0**53)


claim = Claim(epsilon=1.0, delta=1e-3)
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 0]), np.array([0, 0, 1])),
    source="https://github.com/opendp/opendp/issues/414",
    ideal="the addition rounds to the grid of the larger summand: the low bits reveal the count",
    event=event,
    proof="around a count of 1, values in (-0.5, 0.5) are multiples of 2^-53; around 0 most of them are not",
)
