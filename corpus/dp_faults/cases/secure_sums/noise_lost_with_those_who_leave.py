"""Clients send their update first and their share of the noise later, and most leave in between.

The correct version sends both in one message, with shares for the least number of clients; below it the round fails.
"""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA = 1.5
LEAST = 3


def stay(count, rng):
    return rng.random(count) < 0.2


def correct(updates, rng):
    left = updates[stay(len(updates), rng)]
    if len(left) < LEAST:
        return np.array([np.nan])
    noised = np.clip(left, -1, 1) + rng.normal(scale=SIGMA / np.sqrt(LEAST), size=len(left))
    return np.array([noised.sum()])


def broken(updates, rng):
    shares = rng.normal(scale=SIGMA / np.sqrt(len(updates)), size=len(updates))
    return np.array([np.clip(updates, -1, 1).sum() + shares[stay(len(updates), rng)].sum()])


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="zero_out", observer="the server that receives the sum")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(20), np.append(1.0, np.zeros(19))),
    source="https://arxiv.org/abs/2102.06387",
    ideal="about a fifth of the noise's variance reaches the sum",
    event=lambda released: released[0] > 1.3,
    trials=20000,
    proof="with four of twenty shares the noise has standard deviation 0.67, and delta at epsilon 2 is 0.14",
)
