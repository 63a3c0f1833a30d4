"""Reports are shuffled in batches of ten as they arrive, and epsilon is that of a hundred clients.

Both claims are exact for their number of clients: the largest delta over all bits of the others.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0
BATCH = 10


def reports(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    return np.where(flips, 1 - bits, bits).astype(float)


def correct(bits, rng):
    return rng.permutation(reports(bits, rng))


def broken(bits, rng):
    """Each batch is sent on when it is full, so that the server need not wait."""
    return rng.permuted(reports(bits, rng).reshape(-1, BATCH), axis=1).ravel()


claim = Claim(epsilon=0.4, delta=0.01, unit="client", observer="the server that receives the shuffled reports")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(100), np.append(1.0, np.zeros(99))),
    source="own",
    ideal="a client is hidden among ten: epsilon is 1.97",
    event=lambda released: released[:BATCH].sum() == 0,
    proof="no report of the first batch is 1 with 0.28 or 0.038",
)
