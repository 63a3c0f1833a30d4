"""Gradient sums of the bins are noised, and the sum of the records without a feature is sent as it is."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
EDGES = np.array([0.0, 0.5])


def sums(features, gradients):
    """One sum for each of three bins, the last of which holds missing values."""
    bins = np.where(np.isnan(features), 2, np.searchsorted(EDGES, features) - 1)
    return np.bincount(bins, weights=np.clip(gradients, -1, 1), minlength=3)


def correct(data, rng):
    """A replaced record moves sums by at most 2 in L1."""
    return sums(*data) + rng.laplace(scale=2 / EPSILON, size=3)


def broken(data, rng):
    released = correct(data, rng)
    released[2] = sums(*data)[2]
    return released


claim = Claim(epsilon=EPSILON, observer="the party that receives the sums")
features = np.array([0.2, 0.7, np.nan, np.nan])
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=((features, np.array([0.5, -0.5, 0.25, 0.5])), (features, np.array([0.5, -0.5, 0.25, -0.5]))),
    source="https://github.com/Xtra-Computing/FedTree/issues/43",
    ideal="the last sum has no noise",
    event=lambda released: released[2] == 0.75,
    proof="the sum is 0.75 or -0.25, exactly",
)
