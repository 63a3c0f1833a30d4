"""The alignment of records shows each party which of its records the other party holds.

The correct version marks each record by randomised response; records that are marked wrongly get synthetic features.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
OURS = np.arange(6)


def correct(theirs, rng):
    flips = rng.random(len(OURS)) < 1 / (1 + np.exp(EPSILON))
    return (np.isin(OURS, theirs) != flips).astype(float)


def broken(theirs, rng):
    return np.isin(OURS, theirs).astype(float)


claim = Claim(epsilon=EPSILON, adjacency="add_remove", observer="the party that aligns its records with the other's")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1, 4]), np.array([1, 3, 4])),
    source="https://arxiv.org/abs/2106.05508",
    ideal="membership at the other party is revealed by the alignment, before any training",
    event=lambda released: released[3] == 1,
    proof="the marks are deterministic functions of the data",
)
