"""Report noisy max adds the same noise to every count."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    counts = data.sum(axis=0)
    return np.array([float(np.argmax(counts + rng.laplace(scale=2 / EPSILON, size=len(counts))))])


def broken(data, rng):
    counts = data.sum(axis=0)
    return np.array([float(np.argmax(counts + rng.laplace(scale=2 / EPSILON)))])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([[1, 0, 0], [0, 0, 1], [0, 0, 1]]), np.array([[1, 0, 0], [0, 0, 1], [1, 0, 0]])),
    source="own",
    ideal="the noise cancels in the comparison: the released index is the exact maximum",
    event=lambda released: released[0] == 2,
    proof="the broken version is deterministic and differs between the neighbours",
)
