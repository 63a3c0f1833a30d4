"""Lots of a fixed size are accounted for as Poisson-sampled lots, and records are replaced rather than removed.

A replaced record moves a sum by 2, which Poisson accounting of added and removed records does not cover. The correct
version claims no amplification: sixteen sums, each moved by at most 2.
"""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import gaussian_epsilon, sampled_gaussian_epsilon

NOISE_MULTIPLIER, STEPS, LOT, DELTA = 2.0, 16, 2, 0.05


def release(data, rng):
    values = np.clip(data, -1, 1)
    mixed = rng.permuted(np.tile(values, (STEPS, 1)), axis=1)
    return mixed[:, :LOT].sum(axis=1) + rng.normal(scale=NOISE_MULTIPLIER, size=STEPS)


def program(epsilon):
    law = {"mechanism": "gaussian", "noise_multiplier": NOISE_MULTIPLIER, "lot": LOT, "records": 4, "steps": STEPS}
    return Program(claim=Claim(epsilon=epsilon, delta=DELTA), release=release, parts={"law": law})


CASE = Case(
    fault="sampling",
    correct=program(gaussian_epsilon(2 * STEPS**0.5 / NOISE_MULTIPLIER, DELTA)),
    broken=program(sampled_gaussian_epsilon(LOT / 4, NOISE_MULTIPLIER, STEPS, DELTA)),
    neighbours=(np.array([1.0, 0, 0, 0]), np.array([-1.0, 0, 0, 0])),
    source="https://arxiv.org/abs/2403.17673",
    ideal="lots of fixed size under replacement have twice the sensitivity of the accounted law",
    event=lambda released: released.sum() > 10,
    trials=12000,
    proof="the sum of the steps moves by 16 on average, for noise of standard deviation 8.2: mu is about 2",
)
