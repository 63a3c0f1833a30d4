"""A record of five attributes is randomised attribute by attribute, each with all of epsilon."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def randomise(record, epsilon, rng):
    flips = rng.random(len(record)) < 1 / (1 + np.exp(epsilon))
    return np.where(flips, 1 - record, record).astype(float)


def correct(record, rng):
    return randomise(record, EPSILON / len(record), rng)


def broken(record, rng):
    return randomise(record, EPSILON, rng)


claim = Claim(epsilon=EPSILON, unit="record", observer="the server that receives the record's report")
CASE = Case(
    fault="accounting",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(5), np.ones(5)),
    source="own",
    ideal="epsilon is 5 for the whole record; it is 1 for an attribute alone",
    event=lambda released: released.sum() >= 4,
    proof="all five attributes may differ: the ratio is e^5",
)
