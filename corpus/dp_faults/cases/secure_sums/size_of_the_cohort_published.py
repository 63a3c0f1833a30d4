"""The number of clients in the sum is published exactly, and the claim is about added and removed clients.

The correct version noises it with one half of epsilon; the sum has Gaussian noise for the other half.
"""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA = 3.8


def noised_sum(updates, rng):
    """Epsilon 1 and delta 1e-3, by the classic formula sqrt(2 ln(1.25 / delta)) = 3.78."""
    return np.clip(updates, -1, 1).sum() + rng.normal(scale=SIGMA)


def correct(updates, rng):
    return np.array([noised_sum(updates, rng), len(updates) + rng.laplace(scale=1.0)])


def broken(updates, rng):
    return np.array([noised_sum(updates, rng), float(len(updates))])


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="add_remove", observer="whoever reads sum and number")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.full(12, 0.5), np.full(13, 0.5)),
    source="https://github.com/ietf-wg-ppm/draft-ietf-ppm-dap/pull/147",
    ideal="the number of clients reveals whether one was added",
    event=lambda released: released[1] == 12,
    proof="the number is exact",
)
