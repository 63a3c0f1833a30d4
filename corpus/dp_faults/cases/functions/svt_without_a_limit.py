"""The sparse vector technique goes on after positive answers, without a limit that its noise accounts for."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
THRESHOLD = 1.0
LIMIT = 2


def correct(data, rng):
    """Answer until LIMIT answers were positive; answers after that are -1."""
    threshold = THRESHOLD + rng.laplace(scale=2 / EPSILON)
    noised = data.sum(axis=0) + rng.laplace(scale=4 * LIMIT / EPSILON, size=data.shape[1])
    answers = (noised >= threshold).astype(float)
    answers[np.cumsum(answers) - answers >= LIMIT] = -1
    return answers


def broken(data, rng):
    threshold = THRESHOLD + rng.laplace(scale=2 / EPSILON)
    noised = data.sum(axis=0) + rng.laplace(scale=2 / EPSILON, size=data.shape[1])
    return (noised >= threshold).astype(float)


def event(released):
    half = len(released) // 2
    return np.sum(released[half:] == 1) - np.sum(released[:half] == 1) >= 8


claim = Claim(epsilon=EPSILON)
first_half = np.concatenate([np.ones(100), np.zeros(100)])
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.vstack([1 - first_half, first_half]), np.vstack([first_half, first_half])),
    source="https://arxiv.org/abs/1603.01699",
    ideal="each positive answer costs budget: epsilon grows with the number of counts",
    event=event,
    trials=2000,
    proof="Lyu et al. 2017, algorithm 6 of figure 1: the ratio is e^(m epsilon / 2) for 2 m counts",
)
