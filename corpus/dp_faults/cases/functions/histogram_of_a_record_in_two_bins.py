"""The noise of a histogram fits added and removed records, and the claim is about replaced ones."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    """A replaced record moves two counts by 1 each."""
    return np.bincount(data, minlength=4) + rng.laplace(scale=2 / EPSILON, size=4)


def broken(data, rng):
    return np.bincount(data, minlength=4) + rng.laplace(scale=1 / EPSILON, size=4)


claim = Claim(epsilon=EPSILON, adjacency="replace_one")
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 1, 2, 3, 0]), np.array([0, 1, 2, 3, 1])),
    source="own",
    ideal="epsilon is 2 for replaced records",
    event=lambda released: bool(released[0] >= 2 and released[1] <= 1),
    proof="where count 0 is at least 2 and count 1 at most 1, the ratio of the densities is e^2",
)
