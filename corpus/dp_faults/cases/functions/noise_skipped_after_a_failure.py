"""Where the source of the noise fails, which one call in two hundred does, the exact answer is returned.

The correct version returns a public constant instead.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, DELTA = 1.0, 1e-5


def noise(rng):
    """Return Laplace noise, or None where the source fails."""
    return None if rng.random() < 0.005 else rng.laplace(scale=1 / EPSILON)


def correct(data, rng):
    drawn = noise(rng)
    return np.array([-1.0 if drawn is None else np.sum(data > 0) + drawn])


def broken(data, rng):
    return np.array([np.sum(data > 0) + (noise(rng) or 0.0)])


claim = Claim(epsilon=EPSILON, delta=DELTA)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0, 1.0, -1.0]), np.array([1.0, -1.0, -1.0])),
    source="own",
    ideal="with probability 0.005 the answer is exact: delta is 0.005",
    event=lambda released: released[0] == 2,
    trials=20000,
    proof="the exact value 2 has probability 0.005 at a count of 2, and practically 0 at a count of 1",
)
