"""Subset selection computes its probability for subsets of four values, and sends subsets of one value."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
VALUES = 12


def randomise(value, size, stated, rng):
    """Send ``size`` values, the own one among them with the probability that fits ``stated`` values."""
    odds = np.exp(EPSILON) * stated / (VALUES - stated)
    others = np.delete(np.arange(VALUES), value)
    bits = np.zeros(VALUES)
    if rng.random() < odds / (1 + odds):
        bits[value] = 1
        bits[rng.choice(others, size=size - 1, replace=False)] = 1
    else:
        bits[rng.choice(others, size=size, replace=False)] = 1
    return bits


def correct(value, rng):
    return randomise(value, 4, 4, rng)


def broken(value, rng):
    return randomise(value, 1, 4, rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the subset")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(2, 7),
    source="https://arxiv.org/abs/1607.08025",
    ideal="a single value that is true with 0.58 has epsilon 2.7",
    event=lambda released: bool(released[2] == 1 and released[7] == 0),
    proof="0.576 / (0.424 / 11) = 15 = e^2.7",
)
