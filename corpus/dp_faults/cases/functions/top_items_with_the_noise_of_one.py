"""The ten largest counts are chosen at once, with the noise of a single choice.

The correct version chooses one after the other, each with a tenth of epsilon.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
CHOSEN = 10


def correct(data, rng):
    left = data.sum(axis=0).astype(float)
    for _ in range(CHOSEN):
        noised = left + rng.laplace(scale=2 * CHOSEN / EPSILON, size=len(left))
        left[np.argmax(noised)] = -np.inf
    return np.sort(np.flatnonzero(np.isinf(left))).astype(float)


def broken(data, rng):
    counts = data.sum(axis=0) + rng.laplace(scale=2 / EPSILON, size=data.shape[1])
    return np.sort(np.argsort(counts)[-CHOSEN:]).astype(float)


claim = Claim(epsilon=EPSILON)
first_half = np.concatenate([np.ones(10), np.zeros(10)])
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.vstack([first_half, 0 * first_half]), np.vstack([1 - first_half, 0 * first_half])),
    source="https://arxiv.org/abs/2105.08233",
    ideal="k items chosen at once need noise that grows with k",
    event=lambda released: np.sum(released < 10) >= 7,
    trials=8000,
    proof="measured: at least seven of the first ten items are chosen with 0.34 against 0.01, a ratio above e^3",
)
