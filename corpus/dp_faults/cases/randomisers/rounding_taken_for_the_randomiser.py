"""A value in [-1, 1] is rounded at random to a sign, and the rounding is taken for the randomiser."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def rounded(value, rng):
    return 1.0 if rng.random() < (1 + np.clip(value, -1, 1)) / 2 else -1.0


def correct(value, rng):
    """Duchi's mechanism: round, then flip the sign with probability 1 / (1 + e^epsilon)."""
    flip = rng.random() < 1 / (1 + np.exp(EPSILON))
    return np.array([rounded(value, rng) * (-1 if flip else 1)])


def broken(value, rng):
    return np.array([rounded(value, rng)])


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(-1.0, 0.5),
    source="own",
    ideal="at the ends of the range the report is deterministic",
    event=lambda released: released[0] == 1,
    proof="the value -1 is never rounded to 1",
)
