"""A query is answered only if at least eight of ten teachers agree, and this test has no noise."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
NEEDED = 8


def answer(counts, test, scale, rng):
    """Return the label, or -1 where the consensus is too small."""
    if test < NEEDED:
        return np.array([-1.0])
    return np.array([float(np.argmax(counts + rng.laplace(scale=scale, size=2)))])


def correct(votes, rng):
    """Half of epsilon for the test, whose number moves by at most 1, and half for the label."""
    counts = np.bincount(votes, minlength=2)
    return answer(counts, counts.max() + rng.laplace(scale=2 / EPSILON), 4 / EPSILON, rng)


def broken(votes, rng):
    counts = np.bincount(votes, minlength=2)
    return answer(counts, counts.max(), 2 / EPSILON, rng)


claim = Claim(epsilon=EPSILON, unit="teacher", observer="the student, who receives labels and refusals")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [8, 2]), np.repeat([0, 1], [7, 3])),
    source="https://arxiv.org/abs/1802.08908",
    ideal="whether a query is answered is a deterministic function of the votes",
    event=lambda released: released[0] < 0,
    proof="8 votes are answered and 7 are refused",
)
