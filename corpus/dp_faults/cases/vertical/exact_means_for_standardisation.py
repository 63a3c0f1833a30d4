"""A party sends the exact mean of its column, so that both sides standardise alike, and then noised values."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 2.0


def correct(column, rng):
    """Half of epsilon for the mean of a public number of values in [0, 1], half for the value of each record."""
    values = np.clip(column, 0, 1)
    mean = values.mean() + rng.laplace(scale=2 / (len(values) * EPSILON))
    return np.append(values - mean + rng.laplace(scale=2 / EPSILON, size=len(values)), mean)


def broken(column, rng):
    values = np.clip(column, 0, 1)
    return np.append(values - values.mean() + rng.laplace(scale=1 / EPSILON, size=len(values)), values.mean())


claim = Claim(epsilon=EPSILON, observer="the party that receives mean and values")
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.25, 0.5, 0.75, 0.5]), np.array([0.25, 0.5, 0.75, 0.0])),
    source="own",
    ideal="the mean is exact, and with three records known it reveals the fourth",
    event=lambda released: released[-1] == 0.5,
    proof="the mean is a deterministic function of the data",
)
