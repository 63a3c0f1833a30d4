"""Embeddings get noise for norm 1, and their norm has no bound."""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA = 3.0


def embed(features):
    return features @ np.array([[0.6, -0.8], [0.8, 0.6]])


def noised(embeddings, rng):
    """Replacing a record moves an embedding of norm at most 1 by at most 2, which is SIGMA / 1.5."""
    return embeddings + rng.normal(scale=SIGMA, size=embeddings.shape)


def correct(features, rng):
    embeddings = embed(features)
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return noised(embeddings / np.maximum(norms, 1), rng)


def broken(features, rng):
    return noised(embed(features), rng)


claim = Claim(epsilon=2, delta=1e-3, observer="the party with labels, which receives the embeddings")
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.array([[0.0, 0.0], [0.5, 0.5]]), np.array([[12.0, 0.0], [0.5, 0.5]])),
    source="https://arxiv.org/abs/2308.02362",
    ideal="an embedding may have any norm: clip it",
    event=lambda released: released[0, 0] > 6,
    proof="the embeddings are 12 apart, four standard deviations",
)
