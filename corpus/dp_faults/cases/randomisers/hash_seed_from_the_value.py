"""Local hashing derives the seed of the hash from the value, to send one number less.

The seed is sent in the clear and is meant to be public chance.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
BUCKETS = 4


def bucket(value, seed):
    return (value * (2 * seed + 1) + seed) % 1009 % BUCKETS


def randomise(value, seed, rng):
    keep = np.exp(EPSILON) / (np.exp(EPSILON) + BUCKETS - 1)
    hashed = bucket(value, seed)
    if rng.random() >= keep:
        hashed = (hashed + rng.integers(1, BUCKETS)) % BUCKETS
    return np.array([float(seed), float(hashed)])


def correct(value, rng):
    return randomise(value, int(rng.integers(500)), rng)


def broken(value, rng):
    return randomise(value, value * 7919 % 500, rng)


claim = Claim(epsilon=EPSILON, unit="report", observer="the server that receives seed and bucket")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(3, 8),
    source="own",
    ideal="the seed is a function of the value and is sent without noise",
    event=lambda released: released[0] == 3 * 7919 % 500,
    proof="the values 3 and 8 have different seeds",
)
