"""The noise of a median is scaled by the local sensitivity at the present data.

The correct version uses the smooth upper bound of Nissim, Raskhodnikova and Smith with Cauchy noise, for which
beta = epsilon / 6 gives pure epsilon.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def local_sensitivity(data, changed):
    """The largest move of the median of data in [0, 1] by one more record, after some were changed."""
    values = np.concatenate([np.zeros(len(data)), np.sort(data), np.ones(len(data))])
    middle = len(data) + len(data) // 2
    return max(values[middle + t] - values[middle + t - changed - 1] for t in range(changed + 2))


def correct(data, rng):
    smooth = max(np.exp(-EPSILON / 6 * k) * local_sensitivity(data, k) for k in range(len(data) + 1))
    return np.array([np.median(data) + 6 * smooth / EPSILON * rng.standard_cauchy()])


def broken(data, rng):
    return np.array([np.median(data) + rng.laplace(scale=local_sensitivity(data, 0) / EPSILON)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.0, 0.0, 0.0, 0.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0, 1.0])),
    source="https://cs-people.bu.edu/ads22/pubs/NRS07/NRS07-full-draft-v1.pdf",
    ideal="the scale of the noise is a function of the data, and is 0 where the middle values are equal",
    event=lambda released: released[0] == 0,
    proof="with four zeros no single change moves the median: the release is exactly 0",
)
