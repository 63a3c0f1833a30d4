"""The parameter rho of concentrated differential privacy is stated as epsilon."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA, RELEASES, DELTA = 2.0, 4, 1e-3
RHO = RELEASES / (2 * SIGMA**2)


def release(data, rng):
    return np.clip(data, 0, 1).sum() + rng.normal(scale=SIGMA, size=RELEASES)


def program(epsilon):
    claim = Claim(epsilon=epsilon, delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": SIGMA, "rate": 1.0, "steps": RELEASES}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(RHO + 2 * math.sqrt(RHO * math.log(1 / DELTA))),
    broken=program(RHO),
    neighbours=(np.zeros(2), np.append(np.zeros(2), 1.0)),
    source="https://arxiv.org/abs/1605.02065",
    ideal="rho must be converted: epsilon is 3.1 at this delta",
    event=lambda released: released.mean() > 1,
    proof="mu is 1: the exact delta at epsilon 0.5 is 0.24",
)
