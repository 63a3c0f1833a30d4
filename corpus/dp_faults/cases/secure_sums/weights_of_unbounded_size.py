"""Clipped updates are weighted by the numbers of examples of the clients, and the noise assumes equal weights."""

import numpy as np

from dp_faults import Case, Claim, Program

CLIP, SIGMA = 1.0, 1.5


def clipped(updates):
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    return updates * np.minimum(1, CLIP / np.maximum(norms, 1e-12))


def noised_mean(updates, weights, rng):
    mean = weights @ clipped(updates) / weights.sum()
    return mean + rng.normal(scale=SIGMA * CLIP / len(updates), size=updates.shape[1])


def correct(data, rng):
    updates, examples = data
    return noised_mean(updates, np.ones(len(examples)), rng)


def broken(data, rng):
    updates, examples = data
    return noised_mean(updates, examples, rng)


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="zero_out", observer="the server that receives the mean")
examples = np.array([810.0] + [10.0] * 9)
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=((np.zeros((10, 2)), examples), (np.vstack([[1.0, 0.0], np.zeros((9, 2))]), examples)),
    source="own",
    ideal="a client with many examples moves the mean by 0.9 instead of 0.1",
    event=lambda released: released[0] > 0.45,
    proof="its weight is 0.9, and the noise has standard deviation 0.15",
)
