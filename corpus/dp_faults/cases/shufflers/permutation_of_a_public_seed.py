"""The shuffler's permutation is drawn from the number of the round, which everybody knows.

The claim of fifty shuffled reports was computed exactly, as the largest delta over all bits of the other clients.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0
ROUND = 7


def reports(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    return np.where(flips, 1 - bits, bits).astype(float)


def correct(bits, rng):
    return rng.permutation(reports(bits, rng))


def broken(bits, rng):
    return np.random.default_rng(ROUND).permutation(reports(bits, rng))


def place_of_client_0():
    return int(np.flatnonzero(np.random.default_rng(ROUND).permutation(50) == 0)[0])


claim = Claim(epsilon=0.75, delta=0.01, unit="client", observer="the server that receives the shuffled reports")
PLACE = place_of_client_0()
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(50), np.append(1.0, np.zeros(49))),
    source="own",
    ideal="the permutation is known, so the reports are not mixed: epsilon is 2",
    event=lambda released: released[PLACE] == 1,
    proof="the server inverts the permutation; the report of client 0 is 1 with 0.88 or 0.12",
)
