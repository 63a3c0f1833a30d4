"""Keys are released where the noised count reaches the threshold, and delta is computed for counts above it.

With integer noise the threshold itself has a probability.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
THRESHOLD = 3
RATIO = np.exp(-EPSILON)
# P(noise > k) of two-sided geometric noise is RATIO^(k + 1) / (1 + RATIO); a new key has the count 1.
DELTA = RATIO**THRESHOLD / (1 + RATIO)


def noised(data, rng):
    one, other = rng.geometric(1 - RATIO, size=(2, 3))
    counts = np.bincount(data, minlength=3)
    return counts, counts + one - other


def correct(data, rng):
    counts, released = noised(data, rng)
    return np.where((counts > 0) & (released > THRESHOLD), released, -1.0)


def broken(data, rng):
    counts, released = noised(data, rng)
    return np.where((counts > 0) & (released >= THRESHOLD), released, -1.0)


claim = Claim(epsilon=EPSILON, delta=DELTA, adjacency="add_remove")
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 0, 1]), np.array([0, 0, 1, 2])),
    source="https://github.com/opendp/opendp/issues/2922",
    ideal="delta is 0.099 instead of 0.036: the release includes the value of the threshold",
    event=lambda released: released[2] >= 0,
    proof="without the record its key is never released; with it with probability RATIO^2 / (1 + RATIO)",
)
