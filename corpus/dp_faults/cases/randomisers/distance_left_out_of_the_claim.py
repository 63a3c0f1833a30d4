"""Noise that hides neighbouring places is stated to hide any two places.

The noise gives epsilon for each unit of distance, and places lie in [0, 5].
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
LENGTH = 5.0


def correct(place, rng):
    return np.clip(place, 0, LENGTH) + rng.laplace(scale=LENGTH / EPSILON, size=1)


def broken(place, rng):
    return np.clip(place, 0, LENGTH) + rng.laplace(scale=1 / EPSILON, size=1)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the place")
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(1.0, 4.0),
    source="https://arxiv.org/abs/1212.1984",
    ideal="epsilon is 5 between the ends: the claim holds for places one unit apart",
    event=lambda released: released[0] > 3,
    proof="places three units apart have the ratio e^3",
)
