"""A unary encoding spends all of epsilon on each bit, although two values differ in two bits."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
VALUES = 6


def randomise(value, epsilon_of_a_bit, rng):
    bits = np.arange(VALUES) == value
    flipped = rng.random(VALUES) < 1 / (1 + np.exp(epsilon_of_a_bit))
    return (bits != flipped).astype(float)


def correct(value, rng):
    return randomise(value, EPSILON / 2, rng)


def broken(value, rng):
    return randomise(value, EPSILON, rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(2, 4),
    source="https://www.usenix.org/conference/usenixsecurity17/technical-sessions/presentation/wang-tianhao",
    ideal="two bits differ between two values: epsilon is 2",
    event=lambda released: bool(released[2] == 1 and released[4] == 0),
    proof="both bits together have the ratio e^2",
)
