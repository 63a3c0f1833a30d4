"""Gaussian noise is stated to give pure epsilon."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, DELTA = 1.0, 1e-3
SIGMA = math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON


def correct(data, rng):
    return np.array([np.sum(data > 0) + rng.normal(scale=SIGMA)])


def broken(data, rng):
    return np.array([np.sum(data > 0) + rng.normal(scale=1 / EPSILON)])


CASE = Case(
    fault="noise",
    correct=Program(claim=Claim(epsilon=EPSILON, delta=DELTA), release=correct),
    broken=Program(claim=Claim(epsilon=EPSILON, delta=0), release=broken),
    neighbours=(np.array([1.0, -1.0, -1.0]), np.array([1.0, 1.0, -1.0])),
    source="own",
    ideal="Gaussian noise has no pure epsilon: the claim needs a delta",
    event=lambda released: released[0] > 3.5,
    trials=10000,
    proof="the ratio of the densities e^(x - 3/2) is unbounded",
)
