"""The seeds of the noise are agreed on once, so each round adds the same noise.

A client takes part in two rounds; each of the two sums has noise for half of the squared budget.
"""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA = 1.5 * np.sqrt(2)


def correct(rounds, rng):
    return np.clip(rounds, -1, 1).sum(axis=1) + rng.normal(scale=SIGMA, size=2)


def broken(rounds, rng):
    clients = rounds.shape[1]
    seeds = rng.integers(2**32, size=clients)
    sums = np.clip(rounds, -1, 1).sum(axis=1)
    for seed in seeds:
        share = np.random.default_rng(seed).normal(scale=SIGMA / np.sqrt(clients))
        sums += share
    return sums


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="zero_out", observer="the server that receives both sums")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros((2, 4)), np.array([[0.0, 0, 0, 0], [1, 0, 0, 0]])),
    source="own",
    ideal="the difference of the two sums has no noise",
    event=lambda released: abs(released[1] - released[0]) > 0.5,
    trials=2000,
    proof="the difference is exact: 0 or 1, up to rounding",
)
