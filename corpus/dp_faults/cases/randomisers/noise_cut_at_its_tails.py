"""Integer noise is cut to at most 3 in size, so that a report fits into a few bits.

The ends of the range then reveal the value. The correct version clips the noised report instead, which costs nothing.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def noise(rng):
    """Two-sided geometric noise for values in 0 ... 2."""
    one, other = rng.geometric(1 - np.exp(-EPSILON / 2), size=2)
    return float(one - other)


def correct(value, rng):
    return np.array([np.clip(value + noise(rng), -3, 5)])


def broken(value, rng):
    return np.array([value + np.clip(noise(rng), -3, 3)])


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0, 2),
    source="own",
    ideal="a report of 5 shows that the value is 2",
    event=lambda released: released[0] == 5,
    proof="from the value 0 no report exceeds 3",
)
