"""Noise is drawn again until the noised count lies in its range, instead of clipping the result to the range.

The probability that a draw fits depends on the count, so this is another law. The correct version is post-processing.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def geometric(rng):
    """Two-sided geometric noise, whose law is proportional to exp(-epsilon |k|)."""
    one, other = rng.geometric(1 - np.exp(-EPSILON), size=2)
    return float(one - other)


def correct(data, rng):
    return np.array([max(np.sum(data) + geometric(rng), 0.0)])


def broken(data, rng):
    noised = -1.0
    while noised < 0:
        noised = np.sum(data) + geometric(rng)
    return np.array([noised])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 0]), np.array([0, 1, 0])),
    source="https://arxiv.org/abs/1911.00602",
    ideal="the truncated law must be normalised: epsilon is 1.21",
    event=lambda released: released[0] == 0,
    trials=16000,
    proof="0 has probability 1 - a against a / (a + 1 / (1 - a)) with a = e^-1: the ratio is e^1.21",
)
