"""The number of epochs is passed as the number of steps."""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import sampled_gaussian_epsilon

NOISE_MULTIPLIER, EPOCHS, RATE, DELTA = 2.0, 8, 0.25, 0.01
STEPS = EPOCHS * round(1 / RATE)


def release(data, rng):
    values = np.clip(data, -1, 1)
    taken = rng.random((STEPS, len(values))) < RATE
    return taken @ values + rng.normal(scale=NOISE_MULTIPLIER, size=STEPS)


def program(steps):
    epsilon = sampled_gaussian_epsilon(RATE, NOISE_MULTIPLIER, steps, DELTA)
    claim = Claim(epsilon=epsilon, delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "rate": RATE, "steps": STEPS}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(STEPS),
    broken=program(EPOCHS),
    neighbours=(np.zeros(3), np.append(np.zeros(3), 1.0)),
    source="https://github.com/wenzhu23333/Differential-Privacy-Based-Federated-Learning/issues/9",
    ideal="32 steps were made, and 8 were accounted for",
    event=lambda released: released.sum() > 20,
    trials=20000,
    proof="the sum of the steps moves by 8, for noise of standard deviation 11.4: mu is about 0.7",
)
