"""The sparse vector technique releases the noised answer by which it compared.

The noised threshold lies below the released value, so the noise of the threshold no longer hides
the answers before it. The correct version answers with fresh noise, for which it keeps a third of epsilon.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.5
THRESHOLD = 0.0


def search(data, rng, scale, noise):
    """Return the index of the first count above the noised threshold, and this noised count."""
    counts = data.sum(axis=0)
    threshold = THRESHOLD + rng.laplace(scale=scale)
    for index, count in enumerate(counts):
        noised = count + rng.laplace(scale=noise)
        if noised >= threshold:
            return index, count, noised
    return len(counts), 0, 0.0


def correct(data, rng):
    index, count, _ = search(data, rng, scale=3 / EPSILON, noise=6 / EPSILON)
    return np.array([index, count + rng.laplace(scale=3 / EPSILON)])


def broken(data, rng):
    index, _, noised = search(data, rng, scale=2 / EPSILON, noise=2 / EPSILON)
    return np.array([index, noised])


claim = Claim(epsilon=EPSILON)
last = np.array([0, 0, 0, 0, 0, 1])
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.vstack([last, 0 * last]), np.vstack([1 - last, 0 * last])),
    source="https://arxiv.org/abs/1603.01699",
    ideal="the released value bounds the noised threshold, which then hides no answer before it: epsilon is unbounded",
    event=lambda released: bool(released[0] == 5 and 0.5 <= released[1] < 2),
    trials=20000,
    proof="Lyu et al. 2017, algorithm 3 of figure 1: the ratio grows with the number of answers below the threshold",
)
