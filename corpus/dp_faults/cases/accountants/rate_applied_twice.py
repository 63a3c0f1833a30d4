"""The sampling rate of a lot is multiplied once more by the share of records in a lot."""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import sampled_gaussian_epsilon

NOISE_MULTIPLIER, STEPS, RATE, DELTA = 2.0, 16, 0.5, 0.01


def release(data, rng):
    values = np.clip(data, -1, 1)
    taken = rng.random((STEPS, len(values))) < RATE
    return taken @ values + rng.normal(scale=NOISE_MULTIPLIER, size=STEPS)


def program(rate):
    epsilon = sampled_gaussian_epsilon(rate, NOISE_MULTIPLIER, STEPS, DELTA)
    claim = Claim(epsilon=epsilon, delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": RATE, "steps": STEPS}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(RATE),
    broken=program(RATE * RATE),
    neighbours=(np.zeros(3), np.append(np.zeros(3), 1.0)),
    source="https://github.com/meta-pytorch/opacus/issues/669",
    ideal="the rate of the lots is 0.5, and 0.25 was accounted for",
    event=lambda released: released.sum() > 14,
    trials=16000,
    proof="the sum of the steps moves by 8, for noise of standard deviation 8.2: mu is about 1",
)
