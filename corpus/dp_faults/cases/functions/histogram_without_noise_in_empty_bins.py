"""A histogram over public categories adds noise only to the categories that occur."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
CATEGORIES = 6


def correct(data, rng):
    counts = np.bincount(data, minlength=CATEGORIES)
    return counts + rng.laplace(scale=2 / EPSILON, size=CATEGORIES)


def broken(data, rng):
    released = np.zeros(CATEGORIES)
    for category in np.unique(data):
        released[category] = np.sum(data == category) + rng.laplace(scale=2 / EPSILON)
    return released


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 1, 5]), np.array([0, 0, 1, 1])),
    source="own",
    ideal="an exact 0 shows that no record has this category",
    event=lambda released: released[5] == 0,
    proof="the value 0 has probability 1 without the record and 0 with it",
)
