"""A vector of three hundred sums gets noise, but for the last of them, which belongs to the constant feature."""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA = 3.8


def clipped_sum(rows):
    """The last column is the intercept."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.maximum(norms, 1)).sum(axis=0)


def correct(rows, rng):
    """Epsilon 1 and delta 1e-3 by the classic formula: sqrt(2 ln(1.25 / delta)) = 3.78."""
    return clipped_sum(rows) + rng.normal(scale=SIGMA, size=rows.shape[1])


def broken(rows, rng):
    total = clipped_sum(rows)
    total[:-1] += rng.normal(scale=SIGMA, size=rows.shape[1] - 1)
    return total


claim = Claim(epsilon=1.0, delta=1e-3, adjacency="zero_out")
row = np.zeros((1, 300))
row[0, [5, -1]] = 0.6
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros((2, 300)), np.vstack([row, np.zeros((1, 300))])),
    source="own",
    ideal="the last of 300 numbers has no noise",
    event=lambda released: released[-1] > 0.3,
    proof="the last number is 0 or 0.6, exactly",
)
