"""Reports form a column, and the shuffle runs along the axis of the attributes, of which there is one.

The claim of fifty shuffled reports was computed exactly, as the largest delta over all bits of the other clients.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0


def reports(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    return np.where(flips, 1 - bits, bits).astype(float)[:, None]


def correct(bits, rng):
    return rng.permuted(reports(bits, rng), axis=0)


def broken(bits, rng):
    return rng.permuted(reports(bits, rng), axis=1)


claim = Claim(epsilon=0.75, delta=0.01, unit="client", observer="the server that receives the shuffled reports")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(50), np.append(1.0, np.zeros(49))),
    source="https://github.com/arx-deidentifier/arx/issues/218",
    ideal="the reports arrive in the order of the clients: epsilon is 2",
    event=lambda released: released[0, 0] == 1,
    proof="row 0 is the report of client 0, which is 1 with 0.88 or 0.12",
)
