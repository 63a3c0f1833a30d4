"""Noise is added only where the teachers disagree."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(votes, rng):
    counts = np.bincount(votes, minlength=2)
    return np.array([float(np.argmax(counts + rng.laplace(scale=2 / EPSILON, size=2)))])


def broken(votes, rng):
    if np.all(votes == votes[0]):
        return np.array([float(votes[0])])
    return correct(votes, rng)


claim = Claim(epsilon=EPSILON, unit="teacher", observer="the student, who receives the label")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 0, 0, 0]), np.array([0, 0, 0, 0, 1])),
    source="own",
    ideal="the label 1 shows that a teacher disagreed",
    event=lambda released: released[0] == 1,
    proof="with unanimous votes for 0 the label 1 has probability 0",
)
