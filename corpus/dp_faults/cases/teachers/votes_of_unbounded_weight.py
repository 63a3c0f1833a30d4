"""Teachers vote with the scores of their models, which have no bound, instead of with a label."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def answer(votes, rng):
    return np.array([float(np.argmax(votes.sum(axis=0) + rng.laplace(scale=2 / EPSILON, size=votes.shape[1])))])


def correct(scores, rng):
    return answer(np.eye(scores.shape[1])[np.argmax(scores, axis=1)], rng)


def broken(scores, rng):
    return answer(scores, rng)


claim = Claim(epsilon=EPSILON, unit="teacher", observer="the student, who receives the label")
others = np.tile([1.2, -0.3], (4, 1))
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.vstack([others, [0.4, 0.2]]), np.vstack([others, [-20.0, 25.0]])),
    source="own",
    ideal="one teacher outweighs all others: its scores need a bound",
    event=lambda released: released[0] == 1,
    proof="the scores of the last teacher move the lead by 45, for noise of scale 2",
)
