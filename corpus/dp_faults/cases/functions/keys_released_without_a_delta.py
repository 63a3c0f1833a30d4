"""Keys that occur in private data are released above a threshold, and the claim has delta 0.

A key that only one record has is released with a probability that the threshold decides. The correct version states
this probability as delta.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
KEYS = 3


def release(data, threshold, rng):
    """Return the noised count of each key above the threshold, and -1 for the others."""
    counts = np.bincount(data, minlength=KEYS).astype(float)
    noised = counts + rng.laplace(scale=1 / EPSILON, size=KEYS)
    return np.where((counts > 0) & (noised > threshold), noised, -1.0)


def correct(data, rng):
    return release(data, 1 + np.log(1 / (2 * DELTA)) / EPSILON, rng)


def broken(data, rng):
    return release(data, 2.0, rng)


DELTA = 1e-5
CASE = Case(
    fault="accounting",
    correct=Program(claim=Claim(epsilon=EPSILON, delta=DELTA, adjacency="add_remove"), release=correct),
    broken=Program(claim=Claim(epsilon=EPSILON, delta=0, adjacency="add_remove"), release=broken),
    neighbours=(np.array([0, 0, 1]), np.array([0, 0, 1, 2])),
    source="https://arxiv.org/abs/2006.03684",
    ideal="a key of one record is released with probability 0.18, which must be covered by delta",
    event=lambda released: released[2] >= 0,
    proof="without the record its key is never released",
)
