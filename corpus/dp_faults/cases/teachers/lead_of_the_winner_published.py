"""The student receives the lead of the winning class as a confidence, without noise."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(votes, rng):
    """The lead moves by at most 2; label and lead have half of epsilon each."""
    counts = np.bincount(votes, minlength=2)
    label = np.argmax(counts + rng.laplace(scale=4 / EPSILON, size=2))
    return np.array([label, abs(counts[0] - counts[1]) + rng.laplace(scale=4 / EPSILON)])


def broken(votes, rng):
    counts = np.bincount(votes, minlength=2)
    label = np.argmax(counts + rng.laplace(scale=2 / EPSILON, size=2))
    return np.array([label, abs(counts[0] - counts[1])], dtype=float)


claim = Claim(epsilon=EPSILON, unit="teacher", observer="the student, who receives label and confidence")
CASE = Case(
    fault="state",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [8, 3]), np.repeat([0, 1], [7, 4])),
    source="own",
    ideal="the lead is a deterministic function of the votes",
    event=lambda released: released[1] == 5,
    proof="the lead is 5 for one data set and 3 for the other",
)
