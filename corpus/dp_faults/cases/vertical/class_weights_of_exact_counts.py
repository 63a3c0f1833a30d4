"""The party with the labels sends class weights that are computed from exact label counts.

The correct version computes them from noised counts. Labels themselves are randomised in both.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 2.0


def randomised(labels, epsilon, rng):
    flips = rng.random(len(labels)) < 1 / (1 + np.exp(epsilon))
    return np.where(flips, 1 - labels, labels)


def weights(ones, total):
    ones = np.clip(ones, 1, total - 1)
    return total / (2 * ones)


def correct(labels, rng):
    ones = labels.sum() + rng.laplace(scale=2 / EPSILON)
    return np.append(randomised(labels, EPSILON / 2, rng), weights(ones, len(labels)))


def broken(labels, rng):
    return np.append(randomised(labels, EPSILON, rng), weights(labels.sum(), len(labels)))


claim = Claim(epsilon=EPSILON, unit="label", observer="the party without labels, which receives labels and weights")
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1, 0, 0, 1, 0]), np.array([0, 0, 0, 1, 0])),
    source="own",
    ideal="the weight reveals the exact number of ones",
    event=lambda released: released[-1] == 1.25,
    proof="the weight is 1.25 for two ones and 2.5 for one",
)
