"""Clients choose epsilons of their own, and the mean of them is stated for everyone."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILONS = np.array([0.5, 0.5, 0.5, 4.5])


def release(bits, rng):
    flips = rng.random(len(bits)) < 1 / (1 + np.exp(EPSILONS))
    return np.where(flips, 1 - bits, bits).astype(float)


def program(epsilon):
    claim = Claim(epsilon=epsilon, unit="client", observer="the server, which receives all reports")
    law = {"mechanism": "randomised response", "epsilons": EPSILONS.tolist(), "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(EPSILONS.max()),
    broken=program(EPSILONS.mean()),
    neighbours=(np.array([0, 1, 0, 0]), np.array([0, 1, 0, 1])),
    source="own",
    ideal="the claim for every client is the largest epsilon, 4.5",
    event=lambda released: released[3] == 1,
    proof="the last client's report is true with 0.989",
)
