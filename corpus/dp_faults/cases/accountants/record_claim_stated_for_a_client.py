"""Epsilon is computed for one record and is stated for a client, who has five of them."""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon

NOISE_MULTIPLIER, RECORDS, DELTA = 4.0, 5, 1e-3


def release(data, rng):
    """Data have one row for each client; every record is clipped alone."""
    return np.array([np.clip(data, -1, 1).sum() + rng.normal(scale=NOISE_MULTIPLIER)])


def program(epsilon):
    claim = Claim(epsilon=epsilon, delta=DELTA, unit="client", adjacency="zero_out")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": 1.0, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(gaussian_epsilon(RECORDS / NOISE_MULTIPLIER, DELTA)),
    broken=program(gaussian_epsilon(1 / NOISE_MULTIPLIER, DELTA)),
    neighbours=(np.zeros((3, 5)), np.vstack([np.ones(5), np.zeros((2, 5))])),
    source="own",
    ideal="a client moves the sum by five clip norms",
    event=lambda released: released[0] > 4,
    proof="mu is 1.25 instead of 0.25: delta at the stated epsilon 0.6 is 0.31",
)
