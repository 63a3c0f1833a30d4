"""The sparse vector technique gives thirty positive answers with the noise of one answer.

A quarter of epsilon goes to the threshold and the rest to the counts, whose noise is not scaled by the number of
positive answers.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
THRESHOLD = 1.0
LIMIT = 30


def search(data, rng, scale):
    answers = np.full(data.shape[1], -1.0)
    threshold = THRESHOLD + rng.laplace(scale=4 / EPSILON)
    for index, count in enumerate(data.sum(axis=0)):
        answers[index] = count + rng.laplace(scale=scale) >= threshold
        if np.sum(answers == 1) == LIMIT:
            break
    return answers


def correct(data, rng):
    return search(data, rng, scale=2 * LIMIT / (0.75 * EPSILON))


def broken(data, rng):
    return search(data, rng, scale=1 / (0.75 * EPSILON))


def event(released):
    return np.sum(released[30:] == 1) - np.sum(released[:30] == 1) >= 2


claim = Claim(epsilon=EPSILON)
first_half = np.concatenate([np.ones(30), np.zeros(30)])
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.vstack([first_half, 1 - first_half]), np.vstack([first_half, first_half])),
    source="https://arxiv.org/abs/1603.01699",
    ideal="with c positive answers epsilon is (1 + 6 c) / 4 times what is stated",
    event=event,
    trials=2000,
    proof="Lyu et al. 2017, algorithm 4 of figure 1",
)
