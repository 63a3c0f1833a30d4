"""Shares of noise are cut to small integers, so that the sum never leaves the range of the modulus.

The correct version lets the sum wrap around: taking the remainder is post-processing.
"""

import numpy as np

from dp_faults import Case, Claim, Program

MODULUS = 256
LARGEST = 8
SIGMA = 1.5 * LARGEST


def noise(clients, rng):
    return np.rint(rng.normal(scale=SIGMA / np.sqrt(clients), size=clients)).astype(int)


def correct(values, rng):
    messages = (np.clip(values, 0, LARGEST) + noise(len(values), rng)) % MODULUS
    return np.array([float(messages.sum() % MODULUS)])


def broken(values, rng):
    messages = np.clip(values, 0, LARGEST) + np.clip(noise(len(values), rng), -2, 2)
    return np.array([float(messages.sum() % MODULUS)])


claim = Claim(epsilon=2, delta=1e-3, unit="client", observer="the server that receives the sum modulo 256")
CASE = Case(
    fault="numbers",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 4, 4, 4, 4]), np.array([8, 4, 4, 4, 4])),
    source="https://github.com/divviup/libprio-rs/pull/1072",
    ideal="the noise of the sum is at most 10 in size: its ends reveal the value",
    event=lambda released: released[0] < 14,
    proof="with the value 8 the sum is at least 14; with 0 it is below 14 with probability 0.3",
)
