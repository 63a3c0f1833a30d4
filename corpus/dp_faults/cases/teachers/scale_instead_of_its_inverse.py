"""The noise of the votes has the scale gamma, where it should have the scale 1 / gamma."""

import numpy as np

from dp_faults import Case, Claim, Program

GAMMA = 0.25


def answer(votes, scale, rng):
    counts = np.bincount(votes, minlength=2)
    return np.array([float(np.argmax(counts + rng.laplace(scale=scale, size=2)))])


def correct(votes, rng):
    return answer(votes, 1 / GAMMA, rng)


def broken(votes, rng):
    return answer(votes, GAMMA, rng)


claim = Claim(epsilon=2 * GAMMA, unit="teacher", observer="the student, who receives the label")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [6, 5]), np.repeat([0, 1], [5, 6])),
    source="https://github.com/vanderschaarlab/mlforhealthlabpub/issues/36",
    ideal="the scale is 0.25 instead of 4",
    event=lambda released: released[0] == 0,
    proof="the vote of one teacher decides with probability 0.97",
)
