"""A binary search for the median asks a noised count at each step, each time with all of epsilon."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
STEPS = 6


def search(data, scale, rng):
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        below = np.sum(data < middle) + rng.laplace(scale=scale)
        low, high = (low, middle) if below > len(data) / 2 else (middle, high)
    return np.array([(low + high) / 2])


def correct(data, rng):
    return search(data, STEPS / EPSILON, rng)


def broken(data, rng):
    return search(data, 1 / EPSILON, rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0.001, 0.999], [5, 4]), np.repeat([0.001, 0.999], [4, 5])),
    source="own",
    ideal="six counts cost 6 epsilon",
    event=lambda released: released[0] < 0.05,
    trials=8000,
    proof="the lowest interval is found with 0.70^6 = 0.115 or 0.30^6 = 0.0008",
)
