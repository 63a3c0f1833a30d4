"""The steps of staircase noise are 1 / epsilon wide instead of as wide as the sensitivity.

Staircase noise falls by e^-epsilon over each period, which must be the sensitivity, here 1.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 2.0
GAMMA = 0.5


def staircase(period, rng):
    """Draw the sign, the period, and the upper or lower part of the step (Geng and Viswanath)."""
    fall = np.exp(-EPSILON)
    steps = rng.geometric(1 - fall) - 1
    upper = rng.random() < GAMMA / (GAMMA + (1 - GAMMA) * fall)
    within = GAMMA * rng.random() if upper else GAMMA + (1 - GAMMA) * rng.random()
    return rng.choice([-1.0, 1.0]) * period * (steps + within)


def correct(data, rng):
    return np.array([np.sum(data > 0) + staircase(1.0, rng)])


def broken(data, rng):
    return np.array([np.sum(data > 0) + staircase(1 / EPSILON, rng)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, -1.0]), np.array([1.0, 1.0])),
    source="own",
    ideal="the density falls by e^-epsilon over half the sensitivity: epsilon is 4",
    event=lambda released: released[0] >= 2,
    trials=8000,
    proof="values from 2 on have probability 1/2 or e^-4 / 2",
)
