"""Pure epsilons of twenty-five releases are added as the root of their squares."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON, RELEASES = 0.4, 25


def release(data, rng):
    return np.sum(data > 0) + rng.laplace(scale=1 / EPSILON, size=RELEASES)


def program(epsilon):
    law = {"mechanism": "laplace", "epsilon": EPSILON, "steps": RELEASES}
    return Program(claim=Claim(epsilon=epsilon), release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(RELEASES * EPSILON),
    broken=program(math.sqrt(RELEASES) * EPSILON),
    neighbours=(np.array([-1.0, 1.0]), np.array([1.0, 1.0])),
    source="own",
    ideal="pure epsilons add up to 10; a root needs a delta",
    event=lambda released: released.mean() > 2.45,
    trials=12000,
    proof="the means are 1.4 standard deviations apart, and the tail beyond 2.5 has a ratio of e^2.6",
)
