"""The shuffler hides true values among dummy messages, and all dummies have the value 0.

The correct version adds Binomial(100, 1/2) dummies of each value; a replaced value shifts two counts by 1, for which
delta at epsilon 0.75 is exactly 0.00055.
"""

import numpy as np

from dp_faults import Case, Claim, Program

VALUES = 3
DUMMIES = 100


def correct(values, rng):
    """Return the counts of the shuffled messages, which are all that a multiset shows."""
    return (np.bincount(values, minlength=VALUES) + rng.binomial(DUMMIES, 0.5, size=VALUES)).astype(float)


def broken(values, rng):
    counts = np.bincount(values, minlength=VALUES).astype(float)
    counts[0] += rng.binomial(DUMMIES * VALUES, 0.5)
    return counts


claim = Claim(epsilon=0.75, delta=1e-3, unit="client", observer="the server that receives the shuffled messages")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1])),
    source="https://arxiv.org/abs/2504.07362",
    ideal="the counts of the values 1 and 2 are exact",
    event=lambda released: released[2] == 1,
    proof="without dummies of value 2 its count is a deterministic function of the data",
)
