"""Epsilon is computed for a removed record, and the claim is about a replaced one."""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon

NOISE_MULTIPLIER, DELTA = 1.0, 1e-3


def release(data, rng):
    norms = np.linalg.norm(data, axis=1, keepdims=True)
    total = (data * np.minimum(1, 1 / np.maximum(norms, 1e-12))).sum(axis=0)
    return total + rng.normal(scale=NOISE_MULTIPLIER, size=data.shape[1])


def program(sensitivity):
    claim = Claim(epsilon=gaussian_epsilon(sensitivity / NOISE_MULTIPLIER, DELTA), delta=DELTA, adjacency="replace_one")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": 1.0, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(2.0),
    broken=program(1.0),
    neighbours=(np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([[-1.0, 0.0], [0.0, 0.5]])),
    source="own",
    ideal="a replaced record moves the sum by twice the clip norm",
    event=lambda released: released[0] > 1.7,
    trials=12000,
    proof="mu is 2, and delta at the stated epsilon 3.14 is 0.17",
)
