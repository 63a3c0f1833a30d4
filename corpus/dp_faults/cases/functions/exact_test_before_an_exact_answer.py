"""Propose-test-release without noise in the test.

The mode is released exactly if at least seven records would have to change before it changes.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, DELTA = 1.0, 1e-3
NEEDED = np.log(1 / (2 * DELTA)) / EPSILON


def mode_and_distance(data):
    """Replacing one record moves the distance by at most 1."""
    counts = np.bincount(data, minlength=3)
    second, first = np.sort(counts)[-2:]
    return float(np.argmax(counts)), (first - second) // 2


def correct(data, rng):
    mode, distance = mode_and_distance(data)
    return np.array([mode if distance + rng.laplace(scale=1 / EPSILON) > NEEDED + 1 else -1.0])


def broken(data, rng):
    mode, distance = mode_and_distance(data)
    return np.array([mode if distance > NEEDED else -1.0])


claim = Claim(epsilon=EPSILON, delta=DELTA)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [17, 3]), np.repeat([0, 1], [16, 4])),
    source="https://www.cis.upenn.edu/~aaroth/Papers/privacybook.pdf",
    ideal="whether the test passes is a deterministic function of the data",
    event=lambda released: released[0] < 0,
    proof="the test passes with distance 7 and fails with distance 6",
)
