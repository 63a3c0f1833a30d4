"""A sum of integers is held in eight bits and wraps around before the noise is added."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    return np.array([np.sum(data, dtype=np.int64) + rng.laplace(scale=1 / EPSILON)])


def broken(data, rng):
    return np.array([np.sum(data, dtype=np.int8) + rng.laplace(scale=1 / EPSILON)])


claim = Claim(epsilon=EPSILON, adjacency="add_remove")
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.ones(127, dtype=np.int8), np.ones(128, dtype=np.int8)),
    source="https://arxiv.org/abs/2207.10635",
    ideal="the sum overflows: one record moves it from 127 to -128",
    event=lambda released: released[0] < 0,
    proof="the sensitivity of the wrapped sum is 255",
)
