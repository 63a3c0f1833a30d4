"""The pairwise masks of a round are used again in the next one, and the server receives masked uploads.

A fresh uniform mask hides an upload perfectly, so any epsilon holds for the uploads of one client.
"""

import numpy as np

from dp_faults import Case, Claim, Program

MODULUS = 2**16


def correct(values, rng):
    """Return the masked uploads of one client in two rounds."""
    return ((values + rng.integers(MODULUS, size=2)) % MODULUS).astype(float)


def broken(values, rng):
    return ((values + rng.integers(MODULUS)) % MODULUS).astype(float)


claim = Claim(epsilon=0.1, unit="client", observer="the server that receives the masked uploads")
CASE = Case(
    fault="state",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([3, 3]), np.array([3, 10])),
    source="own",
    ideal="the difference of two masked uploads is the difference of the values",
    event=lambda released: released[0] == released[1],
    proof="equal values give equal uploads; with fresh masks this has probability 2^-16",
)
