"""The candidates of a private median are the records themselves.

The weights are those of the exponential mechanism, but a value that nobody has is never chosen. The correct version
chooses among public candidates.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
GRID = np.linspace(0, 1, 11)


def choose(candidates, data, rng):
    ranks = np.array([abs(np.sum(data < c) - np.sum(data > c)) for c in candidates]) / 2
    weights = np.exp(-EPSILON * (ranks - ranks.min()) / 2)
    return np.array([rng.choice(candidates, p=weights / weights.sum())])


def correct(data, rng):
    return choose(GRID, data, rng)


def broken(data, rng):
    return choose(np.sort(data), data, rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.1, 0.3, 0.5, 0.7, 0.9]), np.array([0.1, 0.3, 0.5, 0.8, 0.9])),
    source="own",
    ideal="the release is the value of a record",
    event=lambda released: released[0] == 0.7,
    proof="0.7 has probability 0 where no record has this value",
)
