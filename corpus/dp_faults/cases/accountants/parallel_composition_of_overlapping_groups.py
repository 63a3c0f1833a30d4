"""Counts of groups are accounted for as if each record were in one group, and the groups overlap."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 0.8
GROUPS = ((0, 40), (20, 60), (30, 100))


def release(ages, rng):
    counts = [np.sum((ages >= low) & (ages < high)) for low, high in GROUPS]
    return counts + rng.laplace(scale=1 / EPSILON, size=len(GROUPS))


def program(epsilon):
    law = {"mechanism": "laplace", "epsilon": EPSILON, "steps": len(GROUPS)}
    claim = Claim(epsilon=epsilon, adjacency="add_remove")
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(len(GROUPS) * EPSILON),
    broken=program(EPSILON),
    neighbours=(np.array([25, 70]), np.array([25, 70, 35])),
    source="own",
    ideal="an age of 35 is in three groups: epsilon is 2.4",
    event=lambda released: released.sum() > 6,
    trials=8000,
    proof="an added record raises three counts by 1 each",
)
