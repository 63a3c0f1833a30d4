"""A client without a value reports that it has none, and only values are randomised.

The correct version draws a random value for it first.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def randomise(value, rng):
    flip = rng.random() < 1 / (1 + np.exp(EPSILON))
    return np.array([float(value != flip)])


def correct(value, rng):
    return randomise(rng.integers(2) if value is None else value, rng)


def broken(value, rng):
    return np.array([-1.0]) if value is None else randomise(value, rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(1, None),
    source="own",
    ideal="whether a client has a value is reported without noise",
    event=lambda released: released[0] < 0,
    proof="only a client without a value sends -1",
)
