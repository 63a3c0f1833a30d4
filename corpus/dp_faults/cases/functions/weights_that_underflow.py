"""The weights of the exponential mechanism underflow to 0 for large data sets, and the first candidate is chosen.

The correct version subtracts the largest utility before it takes the exponential.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
GRID = np.array([0.25, 0.5, 0.75])


def utilities(data):
    """Minus half the difference between the numbers below and above; replacing a record moves it by at most 1."""
    return np.array([-abs(np.sum(data < c) - np.sum(data > c)) / 2 for c in GRID])


def choose(exponents, rng):
    cumulated = np.cumsum(np.exp(exponents))
    return np.array([GRID[np.searchsorted(cumulated, rng.random() * cumulated[-1])]])


def correct(data, rng):
    exponents = EPSILON / 2 * utilities(data)
    return choose(exponents - exponents.max(), rng)


def broken(data, rng):
    return choose(EPSILON / 2 * utilities(data), rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(2981), np.append(np.zeros(2980), 1.0)),
    source="https://github.com/opendp/smartnoise-sdk/issues/572",
    ideal="exp(-745.25) is 0: the choice is no longer random",
    event=lambda released: released[0] > 0.5,
    trials=2000,
    proof="with 2981 equal records all weights are 0, and the largest candidate is never chosen",
)
