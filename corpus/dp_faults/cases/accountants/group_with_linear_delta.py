"""The claim for groups of three records multiplies epsilon and delta by three.

Epsilon grows threefold, and delta by the factor 1 + e^epsilon + e^(2 epsilon).
"""

import math

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_delta

SIGMA, EPSILON, GROUP = 2.0, 0.5, 3
DELTA = gaussian_delta(1 / SIGMA, EPSILON)


def release(data, rng):
    return np.array([np.clip(data, 0, 1).sum() + rng.normal(scale=SIGMA)])


def program(delta):
    claim = Claim(epsilon=GROUP * EPSILON, delta=delta, unit="group of three records", adjacency="zero_out")
    law = {"mechanism": "gaussian", "noise_multiplier": SIGMA, "rate": 1.0, "steps": 1, "group": GROUP}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(DELTA * sum(math.exp(k * EPSILON) for k in range(GROUP))),
    broken=program(GROUP * DELTA),
    neighbours=(np.zeros(5), np.array([1.0, 1.0, 1.0, 0.0, 0.0])),
    source="https://www.cis.upenn.edu/~aaroth/Papers/privacybook.pdf",
    ideal="delta of a group of three at epsilon 1.5 is 0.22, and 0.16 is stated",
    event=lambda released: released[0] > 3.5,
    trials=16000,
    proof="mu is 1.5: the exact delta at epsilon 1.5 is 0.22",
)
