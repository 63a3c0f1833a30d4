"""The sparse vector technique noises the threshold and compares it with exact counts."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
THRESHOLD = 0.0


def correct(data, rng):
    """Stop at the first positive answer; answers after it are -1."""
    threshold = THRESHOLD + rng.laplace(scale=2 / EPSILON)
    noised = data.sum(axis=0) + rng.laplace(scale=4 / EPSILON, size=data.shape[1])
    answers = (noised > threshold).astype(float)
    answers[np.cumsum(answers) - answers > 0] = -1
    return answers


def broken(data, rng):
    threshold = THRESHOLD + rng.laplace(scale=2 / EPSILON)
    return (data.sum(axis=0) > threshold).astype(float)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([[0, 1], [0, 0]]), np.array([[1, 0], [0, 0]])),
    source="https://arxiv.org/abs/1603.01699",
    ideal="the counts need noise of their own: the order of two counts is revealed exactly",
    event=lambda released: bool(released[0] == 0 and released[1] == 1),
    proof="the answers (below, above) have probability 0 where the first count is the larger one: epsilon is unbounded",
)
