"""Clients whose bit is 0 send no message, and the server counts the messages.

The claim of fifty shuffled reports was computed exactly, as the largest delta over all bits of the other clients.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0
CLIENTS = 50


def reports(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(LOCAL))
    return np.where(flips, 1 - bits, bits).astype(float)


def correct(bits, rng):
    return rng.permutation(reports(bits, rng))


def broken(bits, rng):
    """Places without a message are -1."""
    received = np.full(CLIENTS, -1.0)
    sent = rng.permutation(reports(bits[bits == 1], rng))
    received[: len(sent)] = sent
    return received


claim = Claim(epsilon=0.75, delta=0.01, unit="client", observer="the server that receives the shuffled reports")
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.repeat([0.0, 1.0], [30, 20]), np.repeat([0.0, 1.0], [29, 21])),
    source="https://github.com/ietf-wg-ppm/draft-ietf-ppm-dap/pull/147",
    ideal="the number of messages is the exact number of ones",
    event=lambda released: np.sum(released >= 0) == 20,
    proof="20 messages arrive for one data set and 21 for the other",
)
