"""The shuffler mixes the rows of a table, and each row still holds the number of its client.

Fifty clients flip a bit with probability 1 / (1 + e^2). The claim of the shuffled reports was computed exactly, as the
largest delta over all bits of the other clients.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0


def reports(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    return np.where(flips, 1 - bits, bits).astype(float)


def correct(bits, rng):
    """Rows are numbered after the shuffle."""
    return np.column_stack([np.arange(len(bits)), rng.permutation(reports(bits, rng))])


def broken(bits, rng):
    return rng.permutation(np.column_stack([np.arange(len(bits)), reports(bits, rng)]))


claim = Claim(epsilon=0.75, delta=0.01, unit="client", observer="the server that receives the shuffled table")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(50), np.append(1.0, np.zeros(49))),
    source="own",
    ideal="each report belongs to a known client: epsilon is 2, that of the client alone",
    event=lambda released: released[released[:, 0] == 0, 1].item() == 1,
    proof="the report of client 0 is 1 with 0.88 or 0.12",
)
