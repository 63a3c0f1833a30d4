"""Report noisy max returns the noised maximum beside its index.

The theorem covers the index alone. The correct version answers with fresh noise and halves the budget.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0


def correct(data, rng):
    counts = data.sum(axis=0)
    index = np.argmax(counts + rng.laplace(scale=4 / EPSILON, size=len(counts)))
    return np.array([index, counts[index] + rng.laplace(scale=2 / EPSILON)])


def broken(data, rng):
    counts = data.sum(axis=0)
    noised = counts + rng.laplace(scale=2 / EPSILON, size=len(counts))
    return np.array([np.argmax(noised), np.max(noised)])


claim = Claim(epsilon=EPSILON)
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros((2, 8)), np.vstack([np.zeros(8), np.ones(8)])),
    source="https://arxiv.org/abs/1805.10277",
    ideal="with k counts the noised maximum costs up to k epsilon / 2",
    event=lambda released: released[1] < 1,
    trials=10000,
    proof="the maximum is below t with probability F(t)^8, against F(t - 1)^8: below 0 the ratio is e^4",
)
