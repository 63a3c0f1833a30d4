"""Each teacher draws a new random half of the data for each query, so that every teacher is trained on every record.

A teacher votes for 1 if its part has a positive record. One record should change the vote of one teacher.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON_OF_A_QUERY = 0.4
QUERIES, TEACHERS = 5, 9


def answer(votes, rng):
    """Votes have one row for each query."""
    ones = votes.sum(axis=1)
    counts = np.column_stack([TEACHERS - ones, ones])
    return np.argmax(counts + rng.laplace(scale=2 / EPSILON_OF_A_QUERY, size=counts.shape), axis=1).astype(float)


def correct(records, rng):
    votes = records.reshape(TEACHERS, -1).max(axis=1)
    return answer(np.tile(votes, (QUERIES, 1)), rng)


def broken(records, rng):
    taken = rng.random((QUERIES, TEACHERS, len(records))) < 0.5
    return answer((taken & (records > 0)).max(axis=2), rng)


claim = Claim(epsilon=QUERIES * EPSILON_OF_A_QUERY, observer="the student, who receives all labels")
CASE = Case(
    fault="sampling",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(18, dtype=int), np.append(np.zeros(17, dtype=int), 1)),
    source="https://github.com/vanderschaarlab/synthcity/issues/275",
    ideal="a record moves about half of all votes",
    event=lambda released: released.sum() >= 4,
    trials=8000,
    proof="the votes are 9 to 0 without the record, and about even with it, in each of five queries",
)
