"""The epsilon spent is computed from the votes, smaller where they agree, and is published without noise.

The stated claim is the bound for any votes; the number beside the label is meant as further information.
"""

import numpy as np

from dp_faults import Case, Claim, Program

GAMMA = 0.5


def spent(counts):
    """A bound by the probability that the label differs from the majority."""
    gap = counts.max() - counts.min()
    other = (2 + GAMMA * gap) / (4 * np.exp(GAMMA * gap))
    return min(2 * GAMMA, 2 * GAMMA * other)


def label(counts, rng):
    return np.argmax(counts + rng.laplace(scale=1 / GAMMA, size=2))


def correct(votes, rng):
    """Publish the bound that holds for any votes."""
    return np.array([label(np.bincount(votes, minlength=2), rng), 2 * GAMMA])


def broken(votes, rng):
    counts = np.bincount(votes, minlength=2)
    return np.array([label(counts, rng), spent(counts)])


claim = Claim(epsilon=2 * GAMMA, unit="teacher", observer="whoever reads the label and the published epsilon")
CASE = Case(
    fault="state",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [9, 1]), np.repeat([0, 1], [8, 2])),
    source="https://arxiv.org/abs/1802.08908",
    ideal="the published epsilon is a deterministic function of the votes",
    event=lambda released: released[1] < 0.05,
    proof="the number is 0.027 for one data set and 0.062 for the other",
)
