"""Permute-and-flip goes through the candidates from the best to the worst, and the best is always accepted."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def flip(counts, order, rng):
    """Return the first candidate whose coin of probability exp(epsilon (u - max u) / 2) falls on heads."""
    for candidate in order:
        if rng.random() < np.exp(EPSILON / 2 * (counts[candidate] - counts.max())):
            return np.array([float(candidate)])
    raise AssertionError("the best candidate is always accepted")


def correct(data, rng):
    counts = np.bincount(data, minlength=4)
    return flip(counts, rng.permutation(4), rng)


def broken(data, rng):
    counts = np.bincount(data, minlength=4)
    return flip(counts, np.argsort(-counts, kind="stable"), rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 0, 2, 2]), np.array([0, 0, 2, 2, 2])),
    source="https://github.com/IBM/differential-privacy-library/pull/30",
    ideal="the mechanism always returns the exact maximum",
    event=lambda released: released[0] == 0,
    proof="the release is a deterministic function of the data",
)
