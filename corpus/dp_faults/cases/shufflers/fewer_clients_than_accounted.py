"""Epsilon is computed for two hundred registered clients, and twenty take part.

Both claims are exact for their number of clients: the largest delta over all bits of the others.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0


def release(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    return rng.permutation(np.where(flips, 1 - bits, bits).astype(float))


def claim(epsilon):
    return Claim(epsilon=epsilon, delta=0.01, unit="client", observer="the server that receives the shuffled reports")


CASE = Case(
    fault="accounting",
    correct=Program(claim=claim(1.87), release=release),
    broken=Program(claim=claim(0.23), release=release),
    neighbours=(np.zeros(20), np.append(1.0, np.zeros(19))),
    source="https://arxiv.org/abs/1903.02837",
    ideal="twenty clients hide each other less: epsilon is 1.86",
    event=lambda released: released.sum() == 0,
    trials=8000,
    proof="no report is 1 with 0.88^20 = 0.079 or 0.12 0.88^19 = 0.011",
)
