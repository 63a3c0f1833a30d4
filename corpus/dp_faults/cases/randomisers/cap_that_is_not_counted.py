"""A unit vector is reported from a spherical cap, and epsilon counts the choice of the cap but not its size.

In three dimensions the cap of vectors whose product with the input is at least 1/2 holds a quarter of the sphere.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
GAMMA, SHARE = 0.5, 0.25


def randomise(vector, inside, rng):
    """Draw uniformly from the cap with probability ``inside``, else uniformly from the rest of the sphere."""
    wanted = rng.random() < inside
    while True:
        drawn = rng.normal(size=3)
        drawn /= np.linalg.norm(drawn)
        if (drawn @ vector >= GAMMA) == wanted:
            return drawn


def correct(vector, rng):
    odds = np.exp(EPSILON) * SHARE / (1 - SHARE)
    return randomise(vector, odds / (1 + odds), rng)


def broken(vector, rng):
    return randomise(vector, np.exp(EPSILON) / (1 + np.exp(EPSILON)), rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives the report")
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, -1.0])),
    source="https://arxiv.org/abs/1812.00984",
    ideal="the densities differ by p / (1 - p) times 3: epsilon is 1 + ln 3",
    event=lambda released: released[2] >= 0.5,
    proof="the density in the cap is p / SHARE, elsewhere (1 - p) / (1 - SHARE)",
)
