"""Binomial coefficients of the Renyi divergence are computed in 32 bits and overflow.

From order 34 on the moments are far too small. Orders whose moment is not positive are skipped.
"""

import math

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import ORDERS, epsilon_of_rdp, sampled_gaussian_epsilon

NOISE_MULTIPLIER, STEPS, RATE, DELTA = 8.0, 256, 0.5, 1e-3


def small_binomials(order):
    """Pascal's triangle, row by row."""
    row = np.ones(1, dtype=np.int32)
    for _ in range(order):
        row = np.append(row, 0).astype(np.int32) + np.append(0, row).astype(np.int32)
    return row


def stated():
    found = []
    for order in ORDERS:
        k = np.arange(order + 1)
        exponents = np.minimum((k * k - k) / (2 * NOISE_MULTIPLIER**2), 600)
        moment = np.sum(small_binomials(order) * (1 - RATE) ** (order - k) * RATE**k * np.exp(exponents))
        if moment > 0:
            found.append(epsilon_of_rdp(STEPS * max(math.log(moment), 0) / (order - 1), order, DELTA))
    return min(found)


def release(data, rng):
    taken = rng.random((STEPS, len(data))) < RATE
    return taken @ np.clip(data, -1, 1) + rng.normal(scale=NOISE_MULTIPLIER, size=STEPS)


def program(epsilon):
    claim = Claim(epsilon=epsilon, delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": RATE, "steps": STEPS}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="numbers",
    correct=program(sampled_gaussian_epsilon(RATE, NOISE_MULTIPLIER, STEPS, DELTA)),
    broken=program(stated()),
    neighbours=(np.zeros(3), np.append(np.zeros(3), 1.0)),
    source="own",
    ideal="coefficients above 2^31 overflow, and a moment below 1 is impossible: epsilon is 3.6",
    event=lambda released: released.sum() > 128,
    proof="mu is about 1, and 0.03 is stated: the exact epsilon at this delta is above 3",
)
