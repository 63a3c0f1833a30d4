"""The classic formula of Gaussian noise is used with an epsilon above 1, where its theorem does not hold.

The correct version solves the exact condition of the analytic Gaussian mechanism by bisection.
"""

import math

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, DELTA = 10.0, 0.01


def below(x):
    return math.erfc(-x / math.sqrt(2)) / 2


def exact_delta(sigma):
    upper = below(1 / (2 * sigma) - EPSILON * sigma)
    return upper - math.exp(EPSILON) * below(-1 / (2 * sigma) - EPSILON * sigma)


def analytic_sigma():
    low, high = 0.05, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if exact_delta(middle) < DELTA else (middle, high)
    return high


SIGMA = analytic_sigma()
CLASSIC = math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON


def correct(data, rng):
    return np.array([np.sum(data > 0) + rng.normal(scale=SIGMA)])


def broken(data, rng):
    return np.array([np.sum(data > 0) + rng.normal(scale=CLASSIC)])


claim = Claim(epsilon=EPSILON, delta=DELTA)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, -1.0]), np.array([1.0, 1.0])),
    source="https://github.com/opendp/smartnoise-sdk/issues/462",
    ideal="the classic formula holds for epsilon below 1 only: delta is 0.04",
    event=None,
    proof="exact_delta(CLASSIC) is 0.041, four times the stated delta; an event would need e^10 runs",
)
