"""Noise that is calibrated for proportions is added to counts, which are divided afterwards."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    """Proportions of a public number of records: replacing one moves two of them by 1 / n."""
    proportions = np.bincount(data, minlength=3) / len(data)
    return proportions + rng.laplace(scale=2 / (len(data) * EPSILON), size=3)


def broken(data, rng):
    counts = np.bincount(data, minlength=3) + rng.laplace(scale=2 / (len(data) * EPSILON), size=3)
    return counts / len(data)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0] * 10 + [1] * 9 + [2]), np.array([0] * 10 + [1] * 10)),
    source="https://github.com/DataResponsibly/DataSynthesizer/issues/34",
    ideal="the noise is n times too small",
    event=lambda released: released[2] > 0.025,
    proof="counts have sensitivity 2 and noise of scale 2 / (20 epsilon): epsilon is 20",
)
