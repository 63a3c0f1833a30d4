"""A unary encoding sets the bit of the value by a draw for all bits, and once more by its own draw.

The optimised encoding sends the bit of the value with p = 1/2 and each other bit with q = 1 / (e^epsilon + 1).
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
VALUES = 5
Q = 1 / (np.exp(EPSILON) + 1)


def correct(value, rng):
    bits = rng.random(VALUES) < Q
    bits[value] = rng.random() < 0.5
    return bits.astype(float)


def broken(value, rng):
    bits = rng.random(VALUES) < Q
    if rng.random() < 0.5:
        bits[value] = True
    return bits.astype(float)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0, 1),
    source="https://github.com/Samuel-Maddock/pure-LDP/issues/11",
    ideal="the bit of the value is sent with 0.63 instead of 1/2: epsilon is 1.55",
    event=lambda released: bool(released[0] == 1 and released[1] == 0),
    trials=8000,
    proof="p = 1/2 + q / 2 gives p (1 - q) / ((1 - p) q) = e^1.55",
)
