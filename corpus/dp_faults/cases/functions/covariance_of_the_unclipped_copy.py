"""The data are clipped into a new table, and the products are computed from the old one."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def noised_products(columns, rng):
    """Sums of x x, x y and y y: replacing a row of [-1, 1]^2 moves them by at most 1, 2 and 1."""
    products = (columns.T @ columns)[np.tril_indices(2)]
    return products + rng.laplace(scale=4 / EPSILON, size=3)


def correct(data, rng):
    data = np.clip(data, -1, 1)
    return noised_products(data, rng)


def broken(data, rng):
    cleaned = np.clip(data, -1, 1)
    return noised_products(data[: len(cleaned)], rng)


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([[0.0, 0.0], [0.5, -0.5]]), np.array([[6.0, 6.0], [0.5, -0.5]])),
    source="https://github.com/opendp/smartnoise-sdk/issues/622",
    ideal="the products are those of unclipped rows",
    event=lambda released: released.min() > 14,
    proof="all three products move by 36, for noise of scale 4",
)
