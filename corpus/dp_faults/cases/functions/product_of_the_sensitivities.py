"""The scale of the noise is multiplied by the sensitivities of three counts, one of which is 0.

The sensitivities used to be 1 or 2, and their product no less than the largest. The third count is of a public column.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
SENSITIVITIES = np.array([2.0, 1.0, 0.0])


def counts(data):
    """Twice the first bits, the second bits, and a public number."""
    return np.array([2 * data[:, 0].sum(), data[:, 1].sum(), 12.0])


def correct(data, rng):
    return counts(data) + rng.laplace(scale=SENSITIVITIES.sum() / EPSILON, size=3)


def broken(data, rng):
    scale = len(SENSITIVITIES) / EPSILON
    for sensitivity in SENSITIVITIES:
        scale *= sensitivity
    return counts(data) + rng.laplace(scale=scale, size=3)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]])),
    source="https://github.com/privcount/privcount/issues/400",
    ideal="a sensitivity of 0 removes the noise of all counts",
    event=lambda released: released[0] == 4,
    proof="the scale is 0, so all counts are exact",
)
