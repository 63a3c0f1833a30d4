"""The logarithm of the ratio of two probabilities is taken to the base ten."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

TRUTH = 0.9


def release(bit, rng):
    return np.array([float(bit if rng.random() < TRUTH else 1 - bit)])


def program(logarithm):
    claim = Claim(epsilon=logarithm(TRUTH / (1 - TRUTH)), unit="bit", observer="the server that receives the report")
    law = {"mechanism": "randomised response", "truth": TRUTH, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(math.log),
    broken=program(math.log10),
    neighbours=(0, 1),
    source="own",
    ideal="epsilon is ln 9 = 2.2, and log10 9 = 0.95 is stated",
    event=lambda released: released[0] == 0,
    proof="the probabilities are 0.9 and 0.1",
)
