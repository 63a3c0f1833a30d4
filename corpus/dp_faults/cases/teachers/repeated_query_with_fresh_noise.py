"""A query that was answered before costs nothing, but it is answered with fresh noise.

The correct version keeps its answer and gives it again, so that repetitions are post-processing.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
REPEATS = 15


def label(votes, rng):
    counts = np.bincount(votes, minlength=2)
    return float(np.argmax(counts + rng.laplace(scale=2 / EPSILON, size=2)))


def correct(votes, rng):
    return np.repeat(label(votes, rng), REPEATS)


def broken(votes, rng):
    return np.array([label(votes, rng) for _ in range(REPEATS)])


claim = Claim(epsilon=EPSILON, unit="teacher", observer="the student, who asks the same query fifteen times")
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [4, 3]), np.repeat([0, 1], [3, 4])),
    source="own",
    ideal="fifteen answers cost fifteen times epsilon",
    event=lambda released: released.sum() >= 11,
    proof="each answer has a ratio of its own, and fifteen multiply them",
)
