"""A tree of counts over ranges is noised as if each record fell into one node.

A record is counted at every level of the tree: in one of eight leaves, one of four ranges, one of two halves.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
LEVELS = 3


def tree(data):
    leaves = np.bincount(data, minlength=8).astype(float)
    return np.concatenate([leaves, leaves.reshape(4, 2).sum(axis=1), leaves.reshape(2, 4).sum(axis=1)])


def correct(data, rng):
    counts = tree(data)
    return counts + rng.laplace(scale=LEVELS / EPSILON, size=len(counts))


def broken(data, rng):
    counts = tree(data)
    return counts + rng.laplace(scale=1 / EPSILON, size=len(counts))


claim = Claim(epsilon=EPSILON, adjacency="add_remove")
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 3, 5]), np.array([0, 3, 5, 6])),
    source="https://github.com/vmware-archive/hillview/pull/527",
    ideal="a record is in one node of each level: epsilon is 3",
    event=lambda released: released[6] + released[11] + released[13] > 5,
    proof="an added record raises three noised counts by 1 each",
)
