"""The server colludes with forty of fifty clients, and their reports are counted among those that hide a client.

Both claims are exact, for fifty clients and for ten: the largest delta over all bits of the others.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0
COLLUDING = 40


def release(bits, rng):
    """Return the reports of the colluding clients, who know them, and all shuffled reports."""
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    reports = np.where(flips, 1 - bits, bits).astype(float)
    return np.concatenate([reports[-COLLUDING:], rng.permutation(reports)])


def claim(epsilon):
    observer = "the server and forty clients that share their reports with it"
    return Claim(epsilon=epsilon, delta=0.01, unit="client", observer=observer)


CASE = Case(
    fault="accounting",
    correct=Program(claim=claim(1.97), release=release),
    broken=Program(claim=claim(0.75), release=release),
    neighbours=(np.zeros(50), np.append(1.0, np.zeros(49))),
    source="https://arxiv.org/abs/2504.07362",
    ideal="only ten clients hide each other: epsilon is 1.97",
    event=lambda released: released[COLLUDING:].sum() == released[:COLLUDING].sum(),
    proof="the other ten reports hold no 1 with 0.28 or 0.038",
)
