"""Eight queries are answered, and the claim is about one."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON_OF_A_QUERY = 0.5


def release(votes, rng):
    """Votes have one row for each query."""
    ones = votes.sum(axis=1)
    counts = np.column_stack([votes.shape[1] - ones, ones])
    noised = counts + rng.laplace(scale=2 / EPSILON_OF_A_QUERY, size=counts.shape)
    return np.argmax(noised, axis=1).astype(float)


def claim(epsilon):
    return Claim(epsilon=epsilon, unit="teacher", observer="the student, who receives all labels")


others = np.tile([0, 0, 1, 1], (8, 1))
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim(8 * EPSILON_OF_A_QUERY), release=release),
    broken=Program(claim=claim(EPSILON_OF_A_QUERY), release=release),
    neighbours=(np.column_stack([others, np.zeros(8, int)]), np.column_stack([others, np.ones(8, int)])),
    source="https://arxiv.org/abs/1610.05755",
    ideal="each answer costs epsilon of its own",
    event=lambda released: released.sum() >= 6,
    proof="one teacher shifts all eight answers in the same direction",
)
