"""The symmetric encoding's probability of a true bit meets the optimised encoding's probability of a false bit."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.2
VALUES = 4
SYMMETRIC = np.exp(EPSILON / 2) / (1 + np.exp(EPSILON / 2))
OPTIMISED = 1 / (1 + np.exp(EPSILON))


def randomise(value, p, q, rng):
    return (rng.random(VALUES) < np.where(np.arange(VALUES) == value, p, q)).astype(float)


def correct(value, rng):
    """Bits may be inverted: this is the optimised encoding with the roles of 0 and 1 exchanged."""
    return 1 - randomise(value, 1 - 0.5, 1 - OPTIMISED, rng)


def broken(value, rng):
    return randomise(value, SYMMETRIC, OPTIMISED, rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0, 3),
    source="own",
    ideal="p and q belong to two encodings: epsilon is 1.8",
    event=lambda released: bool(released[0] == 1 and released[3] == 0),
    trials=8000,
    proof="p (1 - q) / ((1 - p) q) = e^(epsilon / 2) e^epsilon",
)
