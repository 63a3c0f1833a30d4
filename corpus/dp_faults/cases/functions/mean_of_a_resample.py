"""The noise of a bootstrapped mean assumes that each record occurs once.

A resample with replacement holds a record several times. The correct version noises the mean of the data themselves.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    return np.array([np.clip(data, 0, 1).mean() + rng.laplace(scale=1 / (len(data) * EPSILON))])


def broken(data, rng):
    resample = rng.choice(np.clip(data, 0, 1), size=len(data))
    return np.array([resample.mean() + rng.laplace(scale=1 / (len(data) * EPSILON))])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="sampling",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(50), np.append(np.zeros(49), 1.0)),
    source="own",
    ideal="a resample repeats records, so a record moves its mean by more than 1 / n: epsilon is above 1.6",
    event=lambda released: released[0] * 50 > 3,
    trials=12000,
    proof="the tail beyond t is multiplied by E[e^M] for the number M of copies: (1 + (e - 1) / n)^n = e^1.69",
)
