"""Values are centred by their exact mean before they are clipped, so that one outlier moves all of them.

The correct version centres by a public value.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
CENTRE = 50.0


def noised_sum(deviations, rng):
    return np.array([np.clip(deviations, -1, 1).sum() + rng.laplace(scale=2 / EPSILON)])


def correct(data, rng):
    return noised_sum(data - CENTRE, rng)


def broken(data, rng):
    return noised_sum(data - data.mean(), rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.full(20, 50.0), np.append(np.full(19, 50.0), 150.0)),
    source="own",
    ideal="an outlier shifts the mean by 5, and nineteen deviations are clipped to -1",
    event=lambda released: released[0] < -9,
    proof="the sums are 0 and -18, for noise of scale 2",
)
