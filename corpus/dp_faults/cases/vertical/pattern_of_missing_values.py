"""Missing features are sent as missing, and only the values that are present get noise.

The correct version replaces a missing value by the middle of the range before it adds noise.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def noised(features, rng):
    """Features in [0, 1]: a replaced feature moves by at most 1."""
    return np.clip(features, 0, 1) + rng.laplace(scale=1 / EPSILON, size=len(features))


def correct(features, rng):
    return noised(np.where(np.isnan(features), 0.5, features), rng)


def broken(features, rng):
    return noised(features, rng)


claim = Claim(epsilon=EPSILON, unit="feature of a record", observer="the party that receives the features")
CASE = Case(
    fault="preparation",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([0.2, 0.9, 0.4]), np.array([0.2, np.nan, 0.4])),
    source="own",
    ideal="which values are missing is sent without noise",
    event=lambda released: bool(np.isnan(released[1])),
    proof="a value is NaN exactly where it is missing",
)
