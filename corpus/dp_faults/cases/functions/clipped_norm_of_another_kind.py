"""Rows are clipped in the L2 norm, and the Laplace noise assumes the same bound on the L1 norm."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def clipped(data, order):
    norms = np.linalg.norm(data, ord=order, axis=1, keepdims=True)
    return data / np.maximum(norms, 1.0)


def correct(data, rng):
    return clipped(data, 1).sum(axis=0) + rng.laplace(scale=1 / EPSILON, size=data.shape[1])


def broken(data, rng):
    return clipped(data, 2).sum(axis=0) + rng.laplace(scale=1 / EPSILON, size=data.shape[1])


claim = Claim(epsilon=EPSILON, adjacency="zero_out")
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros((2, 25)), np.vstack([np.zeros(25), np.ones(25)])),
    source="own",
    ideal="the L1 norm of a row is up to 5: epsilon is 5",
    event=lambda released: np.sum(np.clip(released, 0, 0.2)) > 2.9,
    trials=8000,
    proof="a row of 25 equal values with L2 norm 1 has L1 norm 5, by which Laplace noise is measured",
)
