"""The analytic Gaussian mechanism subtracts the root that it should add, and draws too little noise.

For delta below delta_0 the factor is sqrt(1 + u / 2) + sqrt(u / 2); the difference of the roots belongs to a larger
delta.
"""

import math

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, DELTA = 1.0, 1e-3


def below(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def least_u():
    """The least u with below(-sqrt(epsilon u)) - e^epsilon below(-sqrt(epsilon (u + 2))) <= delta."""
    low, high = 0.0, 100.0
    for _ in range(80):
        u = (low + high) / 2
        fits = below(-math.sqrt(EPSILON * u)) - math.exp(EPSILON) * below(-math.sqrt(EPSILON * (u + 2))) <= DELTA
        low, high = (low, u) if fits else (u, high)
    return high


U = least_u()


def sigma(sign):
    return (math.sqrt(1 + U / 2) + sign * math.sqrt(U / 2)) / math.sqrt(2 * EPSILON)


def correct(data, rng):
    return np.array([np.sum(data > 0) + rng.normal(scale=sigma(+1))])


def broken(data, rng):
    return np.array([np.sum(data > 0) + rng.normal(scale=sigma(-1))])


claim = Claim(epsilon=EPSILON, delta=DELTA)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, -1.0, -1.0]), np.array([1.0, 1.0, -1.0])),
    source="https://github.com/opendp/smartnoise-core/issues/316",
    ideal="the noise has standard deviation 0.2 instead of 2.6",
    event=lambda released: released[0] > 1.5,
    trials=1000,
    proof="the counts are five standard deviations apart",
)
