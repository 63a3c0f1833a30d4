"""Uniform noise replaces Laplace noise of the same variance."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    return np.array([np.sum(data > 0) + rng.laplace(scale=1 / EPSILON)])


def broken(data, rng):
    width = np.sqrt(6) / EPSILON
    return np.array([np.sum(data > 0) + rng.uniform(-width, width)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, -1.0]), np.array([1.0, 1.0])),
    source="own",
    ideal="bounded noise excludes values: epsilon is unbounded",
    event=lambda released: released[0] > 1 + np.sqrt(6),
    proof="at a count of 1 no release exceeds 1 + sqrt(6); at a count of 2 a fifth of them does",
)
