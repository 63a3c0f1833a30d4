"""The student's accuracy on private labels is published with it, without noise."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def train(records, scale, rng):
    """A student that predicts the noised majority everywhere; one record changes one vote."""
    counts = np.bincount(records, minlength=2)
    return np.argmax(counts + rng.laplace(scale=scale, size=2))


def correct(records, rng):
    label = train(records, 4 / EPSILON, rng)
    return np.array([label, np.mean(records == label) + rng.laplace(scale=2 / (len(records) * EPSILON))])


def broken(records, rng):
    label = train(records, 2 / EPSILON, rng)
    return np.array([label, np.mean(records == label)])


claim = Claim(epsilon=EPSILON, observer="whoever reads the student and its accuracy")
CASE = Case(
    fault="state",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0, 1], [10, 10]), np.repeat([0, 1], [9, 11])),
    source="own",
    ideal="the accuracy reveals the number of ones exactly",
    event=lambda released: released[1] == 0.5,
    proof="the accuracy is 0.5 for one data set, and 0.45 or 0.55 for the other",
)
