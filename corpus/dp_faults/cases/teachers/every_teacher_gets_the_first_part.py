"""Every teacher is trained on the first part of the data, because the index of the part is not used.

A teacher votes for 1 if most records of its part are 1, so one record may change all votes.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
TEACHERS, SIZE = 7, 3


def answer(parts, rng):
    votes = np.mean(parts, axis=1) > 0.5
    counts = np.array([np.sum(~votes), np.sum(votes)])
    return np.array([float(np.argmax(counts + rng.laplace(scale=2 / EPSILON, size=2)))])


def correct(records, rng):
    return answer(records.reshape(TEACHERS, SIZE), rng)


def broken(records, rng):
    return answer(np.stack([records[:SIZE] for _ in range(TEACHERS)]), rng)


claim = Claim(epsilon=EPSILON, unit="record", observer="the student, who receives the label")
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 1, 1] + [0, 1, 0] * 6), np.array([0, 1, 0] + [0, 1, 0] * 6)),
    source="https://github.com/vanderschaarlab/mlforhealthlabpub/issues/29",
    ideal="a record of the first part changes seven votes: epsilon is 7",
    event=lambda released: released[0] == 1,
    proof="the votes are 7 to 0 or 0 to 7, for noise that hides one vote",
)
