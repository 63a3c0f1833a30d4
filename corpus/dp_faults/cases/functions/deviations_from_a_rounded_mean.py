"""Squared deviations are summed around a mean that is rounded, and one record decides how it rounds.

Values lie in [2^50, 2^50 + 1], where doubles are a quarter apart. The correct version subtracts 2^50 first, which is
exact.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
BASE = 2.0**50


def squared_deviations(values):
    total = 0.0
    for value in values:
        total += value
    mean = total / len(values)
    return np.sum((values - mean) ** 2)


def correct(data, rng):
    """The sum of squared deviations of n values in [0, 1] moves by less than 1 where one is replaced."""
    return np.array([squared_deviations(np.clip(data - BASE, 0, 1)) + rng.laplace(scale=1 / EPSILON)])


def broken(data, rng):
    return np.array([squared_deviations(np.clip(data, BASE, BASE + 1)) + rng.laplace(scale=1 / EPSILON)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.full(96, BASE + 0.25), np.append(BASE, np.full(95, BASE + 0.25))),
    source="https://github.com/opendp/opendp/issues/2923",
    ideal="the rounding of the mean moves all deviations at once: the sensitivity grows with the number of records",
    event=lambda released: released[0] > 3,
    proof="the sums are 0 and 5.94; exact arithmetic gives 0 and 0.06",
)
