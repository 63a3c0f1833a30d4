"""The permanent bits of RAPPOR are drawn anew each day instead of once for a value.

The claim is about all days together. The correct version keeps the permanent bits and draws from them each day.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
VALUES = 4
DAYS = 6


def permanent(value, rng):
    bits = np.arange(VALUES) == value
    return bits != (rng.random(VALUES) < 1 / (1 + np.exp(EPSILON / 2)))


def report(bits, rng):
    """Each permanent bit is sent with 3/4, and its opposite with 1/4."""
    return bits != (rng.random(VALUES) < 0.25)


def correct(value, rng):
    bits = permanent(value, rng)
    return np.concatenate([report(bits, rng) for _ in range(DAYS)]).astype(float)


def broken(value, rng):
    return np.concatenate([report(permanent(value, rng), rng) for _ in range(DAYS)]).astype(float)


def event(released):
    days = released.reshape(DAYS, VALUES)
    return days[:, 0].sum() - days[:, 1].sum() >= 3


claim = Claim(epsilon=EPSILON, unit="client", observer="the server that receives all reports of the client")
CASE = Case(
    fault="state",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(0, 1),
    source="https://arxiv.org/abs/1407.6981",
    ideal="fresh permanent bits average out over the days: epsilon grows with their number",
    event=event,
    trials=20000,
    proof="each day has a ratio of its own, and six days multiply them",
)
