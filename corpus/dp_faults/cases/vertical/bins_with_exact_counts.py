"""Gradient sums of each bin of a split are noised, and the numbers of records in the bins are exact."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 2.0
EDGES = np.array([0.33, 0.66])


def by_bin(features, gradients):
    bins = np.searchsorted(EDGES, features)
    return np.bincount(bins, weights=np.clip(gradients, -1, 1), minlength=3), np.bincount(bins, minlength=3)


def correct(data, rng):
    """A replaced record moves sums by at most 2 and counts by at most 2 in L1; half of epsilon for each."""
    sums, counts = by_bin(*data)
    return np.concatenate([sums, counts]) + rng.laplace(scale=4 / EPSILON, size=6)


def broken(data, rng):
    sums, counts = by_bin(*data)
    return np.concatenate([sums + rng.laplace(scale=2 / EPSILON, size=3), counts])


claim = Claim(epsilon=EPSILON, observer="the party with labels, which chooses the split")
gradients = np.array([0.5, -0.2, 0.1, -0.4])
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=((np.array([0.1, 0.5, 0.9, 0.2]), gradients), (np.array([0.1, 0.5, 0.9, 0.7]), gradients)),
    source="https://arxiv.org/abs/1901.08755",
    ideal="the counts reveal the bin of a record",
    event=lambda released: released[3] == 2,
    proof="the count of the first bin is 2 for one data set and 1 for the other",
)
