"""Values are split into two shares by a small random number, without a modulus.

A share must be uniform over the whole field; then it reveals nothing, and any epsilon holds for one server alone.
"""

import numpy as np

from dp_faults import Case, Claim, Program

MODULUS = 2**16


def correct(values, rng):
    """Return the shares that the second of two servers receives."""
    first = rng.integers(MODULUS, size=len(values))
    return ((values - first) % MODULUS).astype(float)


def broken(values, rng):
    first = rng.integers(100, size=len(values))
    return (values - first).astype(float)


claim = Claim(epsilon=0.1, unit="client", observer="one of the two servers, without the other")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0, 5, 9]), np.array([1000, 5, 9])),
    source="own",
    ideal="a share differs from the value by less than 100",
    event=lambda released: 0 < released[0] < 2000,
    proof="the first share lies in (-100, 0] for the value 0, and in (900, 1000] for the value 1000",
)
