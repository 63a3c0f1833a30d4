"""Renyi divergences are stated as epsilon without the term that depends on delta.

The correct version converts at a single order. This is loose but valid, since each order gives a bound.
"""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import epsilon_of_rdp

NOISE_MULTIPLIER, DELTA = 1.0, 1e-5


def rdp(order):
    return order / (2 * NOISE_MULTIPLIER**2)


def release(data, rng):
    return np.array([np.clip(data, 0, 1).sum() + rng.normal(scale=NOISE_MULTIPLIER)])


def program(epsilon):
    claim = Claim(epsilon=epsilon, delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": 1.0, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(epsilon_of_rdp(rdp(5), 5, DELTA)),
    broken=program(min(rdp(order) for order in range(2, 64))),
    neighbours=(np.array([0.5, 0.25]), np.array([0.5, 0.25, 1.0])),
    source="https://github.com/meta-pytorch/opacus/issues/157",
    ideal="the conversion lacks log(1 / delta) / (order - 1): epsilon is 4.4",
    event=lambda released: released[0] > 2.25,
    proof="delta at the stated epsilon 1 is 0.127",
)
