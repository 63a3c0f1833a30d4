"""Generalised randomised response computes its probability for a domain that is one value smaller."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
VALUES = 3


def randomise(value, size, rng):
    """Keep the value with e^epsilon / (e^epsilon + size - 1), else send one of the other values."""
    keep = np.exp(EPSILON) / (np.exp(EPSILON) + size - 1)
    if rng.random() < keep:
        return np.array([float(value)])
    return np.array([float((value + rng.integers(1, VALUES)) % VALUES)])


def correct(value, rng):
    return randomise(value, VALUES, rng)


def broken(value, rng):
    """Values are numbered from 0, so the largest one was taken for their number."""
    return randomise(value, VALUES - 1, rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0, 1),
    source="own",
    ideal="with three values epsilon is 1 + ln 2",
    event=lambda released: released[0] == 0,
    proof="keep / ((1 - keep) / 2) = 2 e",
)
