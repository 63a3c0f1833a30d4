"""Each client draws one number of noise and adds it to all coordinates."""

import numpy as np

from dp_faults import Case, Claim, Program

CLIP, SIGMA = 1.0, 1.5


def secure_sum(updates, size, rng):
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    clipped = updates * np.minimum(1, CLIP / np.maximum(norms, 1e-12))
    shares = rng.normal(scale=SIGMA * CLIP / np.sqrt(len(updates)), size=size)
    return np.sum(clipped + shares, axis=0)


def correct(updates, rng):
    return secure_sum(updates, updates.shape, rng)


def broken(updates, rng):
    return secure_sum(updates, (len(updates), 1), rng)


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="zero_out", observer="the server that receives the sum")
CASE = Case(
    fault="noise",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros((5, 2)), np.vstack([[1.0, 0.0], np.zeros((4, 2))])),
    source="own",
    ideal="the noise cancels in the difference of two coordinates",
    event=lambda released: released[0] - released[1] > 0.5,
    proof="the difference is exact: 0 or 1, up to rounding",
)
