"""A histogram has as many bins as the largest value of the data demands, and each bin is noised.

Releases are padded with -1000, which no count reaches. The correct version has a public number of bins.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
BINS = 8


def correct(data, rng):
    return np.bincount(np.minimum(data, BINS - 1), minlength=BINS) + rng.laplace(scale=2 / EPSILON, size=BINS)


def broken(data, rng):
    released = np.full(BINS, -1000.0)
    for value in range(min(data.max() + 1, BINS)):
        released[value] = np.sum(data == value) + rng.laplace(scale=2 / EPSILON)
    return released


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 1, 2, 2]), np.array([0, 1, 2, 6])),
    source="https://desfontain.es/blog/privacy-bugs.html",
    ideal="the number of iterations is the largest value",
    event=lambda released: released[6] == -1000,
    proof="bin 6 is released exactly where a record has a value of at least 6",
)
