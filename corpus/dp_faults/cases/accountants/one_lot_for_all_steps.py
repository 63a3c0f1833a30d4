"""One lot is drawn and used in all thirty steps, and epsilon is that of thirty fresh lots."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, RATE, STEPS = 1.0, 0.05, 30


def release(data, rng):
    """Sums of a lot with Laplace noise; each step alone has EPSILON."""
    lot = rng.random(len(data)) < RATE
    return np.clip(data, 0, 1)[lot].sum() + rng.laplace(scale=1 / EPSILON, size=STEPS)


def program(epsilon):
    law = {"mechanism": "laplace", "epsilon": EPSILON, "rate": RATE, "steps": STEPS, "lots": 1}
    claim = Claim(epsilon=epsilon, adjacency="add_remove")
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="sampling",
    correct=program(math.log1p(RATE * math.expm1(STEPS * EPSILON))),
    broken=program(STEPS * math.log1p(RATE * math.expm1(EPSILON))),
    neighbours=(np.zeros(3), np.append(np.zeros(3), 1.0)),
    source="https://arxiv.org/abs/2405.20769",
    ideal="with one lot the amplification applies once, to the composition: epsilon is 27",
    event=lambda released: released.sum() > 26,
    trials=20000,
    proof="the record is in the lot with 0.05 and then moves all thirty sums",
)
