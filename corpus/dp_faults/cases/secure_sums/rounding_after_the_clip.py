"""Updates are clipped, and then rounded to integers, which doubles their norm.

The correct version rounds towards zero, so that the norm does not grow.
"""

import numpy as np

from dp_faults import Case, Claim, Program

CLIP, SIGMA = 5.1, 1.5


def noised_sum(integers, rng):
    return integers.sum(axis=0) + rng.normal(scale=SIGMA * CLIP, size=integers.shape[1])


def clipped(updates):
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    return updates * np.minimum(1, CLIP / np.maximum(norms, 1e-12))


def correct(updates, rng):
    return noised_sum(np.trunc(clipped(updates)), rng)


def broken(updates, rng):
    return noised_sum(np.rint(clipped(updates)), rng)


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="zero_out", observer="the server that receives the sum")
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros((3, 100)), np.vstack([np.full(100, 0.7), np.zeros((2, 100))])),
    source="https://arxiv.org/abs/2102.06387",
    ideal="after rounding a client has norm 10 instead of at most 5.1",
    event=lambda released: released.mean() > 1.7,
    trials=12000,
    proof="100 values of 0.51 become 1: the sum moves by 1.3 standard deviations, and delta at epsilon 2 is 0.084",
)
