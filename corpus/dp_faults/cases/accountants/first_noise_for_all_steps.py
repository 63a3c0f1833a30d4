"""The noise decays from step to step, and the accountant uses the noise of the first step for all of them."""

import math

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon

STEPS, DELTA = 6, 0.01
SIGMAS = 4.0 * 0.7 ** np.arange(STEPS)


def release(data, rng):
    return np.clip(data, 0, 1).sum() + rng.normal(scale=SIGMAS)


def program(sigmas):
    mu = math.sqrt(np.sum(1 / sigmas**2))
    claim = Claim(epsilon=gaussian_epsilon(mu, DELTA), delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": SIGMAS.tolist(), "rate": 1.0, "steps": STEPS}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(SIGMAS),
    broken=program(np.full(STEPS, SIGMAS[0])),
    neighbours=(np.zeros(2), np.append(np.zeros(2), 1.0)),
    source="own",
    ideal="later steps have less noise than was accounted for: mu is 2.1 instead of 0.6",
    event=lambda released: np.sum(released / SIGMAS**2) / np.sum(1 / SIGMAS**2) > 0.8,
    proof="the likelihood ratio of all steps has mu = sqrt(sum of 1 / sigma^2) = 2.1",
)
