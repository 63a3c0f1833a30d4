"""The noise of a mean is divided by the true number of records, which the claim protects.

Under add/remove the number of records is private: the scale of the noise reveals it, and the mean moves by more than
1 / n. The correct version divides a noised sum by a noised number, each with half of epsilon.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    values = np.clip(data, 0, 1)
    total = values.sum() + rng.laplace(scale=2 / EPSILON)
    number = len(values) + rng.laplace(scale=2 / EPSILON)
    return np.array([total / max(number, 1.0)])


def broken(data, rng):
    values = np.clip(data, 0, 1)
    return np.array([values.mean() + rng.laplace(scale=1 / (len(values) * EPSILON))])


claim = Claim(epsilon=EPSILON, adjacency="add_remove")
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([1.0]), np.array([1.0, 0.0])),
    source="https://github.com/opendp/smartnoise-core/issues/356",
    ideal="the sensitivity of a mean under add/remove is not 1 / n with the n of the present data",
    event=lambda released: released[0] > 3.5,
    trials=10000,
    proof="the scales 1 and 1/2 differ between the neighbours, so the ratio of the tails is unbounded",
)
