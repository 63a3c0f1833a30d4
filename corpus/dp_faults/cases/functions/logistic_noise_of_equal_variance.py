"""Logistic noise has the variance of the Laplace noise that it replaces, and so a scale that is too small.

Logistic noise of scale 1 / epsilon gives pure epsilon, since the derivative of its log density is at most 1 / scale.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 2.0


def correct(data, rng):
    return np.array([np.sum(data > 0) + rng.logistic(scale=1 / EPSILON)])


def broken(data, rng):
    """The variance of logistic noise is scale^2 pi^2 / 3, that of Laplace noise 2 / epsilon^2."""
    return np.array([np.sum(data > 0) + rng.logistic(scale=np.sqrt(6) / (np.pi * EPSILON))])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, -1.0]), np.array([1.0, 1.0])),
    source="own",
    ideal="epsilon is pi / sqrt(6) times what is stated: 2.57",
    event=lambda released: released[0] > 2.5,
    trials=20000,
    proof="far in the tail the densities have the ratio e^(1 / scale) = e^2.57",
)
