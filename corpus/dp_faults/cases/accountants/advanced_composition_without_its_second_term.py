"""Advanced composition is computed without its term k epsilon (e^epsilon - 1)."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, RELEASES, DELTA = 1.0, 60, 0.01


def composed(*, second_term):
    first = EPSILON * math.sqrt(2 * RELEASES * math.log(1 / DELTA))
    second = RELEASES * EPSILON * math.expm1(EPSILON) if second_term else 0.0
    return min(first + second, RELEASES * EPSILON)


def release(bit, rng):
    flips = rng.random(RELEASES) < 1 / (1 + math.exp(EPSILON))
    return np.where(flips, 1 - bit, bit).astype(float)


def program(epsilon):
    law = {"mechanism": "randomised response", "epsilon": EPSILON, "steps": RELEASES}
    return Program(claim=Claim(epsilon=epsilon, delta=DELTA, unit="bit"), release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(composed(second_term=True)),
    broken=program(composed(second_term=False)),
    neighbours=(0, 1),
    source="own",
    ideal="the privacy loss exceeds 23.5 with probability 0.76: delta at epsilon 23.5 is 0.69",
    event=None,
    proof="the loss is the number of truths less that of lies, 27.7 on average; an event would need e^23 runs",
)
