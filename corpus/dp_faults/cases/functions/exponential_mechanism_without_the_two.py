"""The exponential mechanism weighs by exp(epsilon u) instead of exp(epsilon u / 2), for a utility that is not monotone.

A replaced record moves the utility of one candidate down and that of another up, so the normaliser moves as well.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def choose(counts, exponent, rng):
    weights = np.exp(exponent * (counts - counts.max()))
    return np.array([float(rng.choice(len(counts), p=weights / weights.sum()))])


def correct(data, rng):
    return choose(np.bincount(data, minlength=3), EPSILON / 2, rng)


def broken(data, rng):
    return choose(np.bincount(data, minlength=3), EPSILON, rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 1, 1, 1]), np.array([1, 1, 1, 1])),
    source="https://www.cis.upenn.edu/~aaroth/Papers/privacybook.pdf",
    ideal="epsilon approaches 2, twice what is stated",
    event=lambda released: released[0] == 0,
    trials=8000,
    proof="candidate 0 is chosen with e / (e + e^3 + 1) against 1 / (2 + e^4): the ratio is e^1.87",
)
