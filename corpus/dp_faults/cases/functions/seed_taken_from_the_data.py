"""The generator of the noise is seeded by a checksum of the data, so that a query that is repeated costs nothing.

Equal data give the equal answer, as wanted, but each data set has one answer. The correct version draws fresh noise.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    return np.array([np.sum(data) + rng.laplace(scale=1 / EPSILON)])


def broken(data, rng):
    del rng
    own = np.random.default_rng(np.asarray(data))
    return np.array([np.sum(data) + own.laplace(scale=1 / EPSILON)])


claim = Claim(epsilon=EPSILON)
data = np.array([1, 0, 1, 1])
ANSWER = broken(data, None)[0]
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(data, np.array([1, 0, 1, 0])),
    source="own",
    ideal="the release is a deterministic function of the data",
    event=lambda released: released[0] == ANSWER,
    proof="whoever knows all but one record recomputes both answers and compares",
)
