"""Each client adds the share of the noise that fits four hundred invited clients, and ten take part.

The claim follows from the exact delta of Gaussian noise of standard deviation 1.5 at sensitivity 1: 0.0007.
"""

import numpy as np

from dp_faults import Case, Claim, Program

CLIP, SIGMA, INVITED = 1.0, 1.5, 400


def secure_sum(updates, share, rng):
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    clipped = updates * np.minimum(1, CLIP / np.maximum(norms, 1e-12))
    return np.sum(clipped + rng.normal(scale=share, size=updates.shape), axis=0)


def correct(updates, rng):
    return secure_sum(updates, SIGMA * CLIP / np.sqrt(len(updates)), rng)


def broken(updates, rng):
    return secure_sum(updates, SIGMA * CLIP / np.sqrt(INVITED), rng)


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="zero_out", observer="the server that receives the sum")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros((10, 3)), np.vstack([[1.0, 0, 0], np.zeros((9, 3))])),
    source="https://github.com/flwrlabs/flower/issues/1892",
    ideal="the sum has noise of standard deviation 0.24 instead of 1.5",
    event=lambda released: released[0] > 0.5,
    proof="a client moves the sum by four standard deviations",
)
