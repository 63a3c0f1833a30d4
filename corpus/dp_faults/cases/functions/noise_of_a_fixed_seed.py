"""The noise is drawn from a generator whose seed has a default value, which everybody can read."""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def noised_sum(data, rng, seed=None):
    generator = rng if seed is None else np.random.default_rng(seed)
    return np.array([np.clip(data, 0, 1).sum() + generator.laplace(scale=1 / EPSILON)])


def correct(data, rng):
    return noised_sum(data, rng)


def broken(data, rng):
    return noised_sum(data, rng, seed=0)


claim = Claim(epsilon=EPSILON)
neighbours = (np.array([0.25, 0.5]), np.array([0.25, 1.0]))
KNOWN = broken(neighbours[0], None)[0]
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=neighbours,
    source="https://github.com/alan-turing-institute/tapas/issues/101",
    ideal="the noise is the same in each run, and can be subtracted",
    event=lambda released: released[0] == KNOWN,
    proof="the release is a deterministic function of the data",
)
