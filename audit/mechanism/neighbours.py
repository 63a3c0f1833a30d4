"""Neighbouring input vectors of bounded norm, chosen to reveal as much as possible about a mechanism."""

import math
from itertools import chain

import numpy as np

from ..arrays import FloatArray
from ..binomial import check_number
from ..claim import Adjacency

Pair = tuple[FloatArray, FloatArray]


def ball_neighbours(
    dimension: int,
    *,
    radius: float,
    norm: int = 2,
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
    directions: int = 2,
    seed: int = 0,
) -> list[Pair]:
    """Return pairs of neighbouring vectors (x0, x1) to pass to ``audit_mechanism`` as ``pairs``.

    Each vector has shape ``(dimension,)`` and an L2 or L1 norm of ``radius`` or 0.

    The vectors point along the first coordinate, the last, all coordinates equally, and ``directions`` random ones.
    Each is paired with zero, and under replace-one adjacency also with its opposite, which is twice as far away.
    Add/remove and zero-out pairs start at zero, because an absent unit contributes nothing. No list of pairs is
    guaranteed to contain the worst one.

    Raises ValueError unless dimension >= 1, radius > 0 and finite, norm is 1 or 2, directions >= 0.
    """
    for name, value in (("dimension", dimension), ("radius", radius), ("directions", directions)):
        check_number(name, value)
    if dimension < 1 or directions < 0:
        raise ValueError(
            f"dimension must be >= 1 and the number of random directions >= 0, got {dimension} and {directions}"
        )
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be > 0 and finite, got {radius}")
    if norm not in (1, 2):
        raise ValueError(f"norm must be 1 (for L1) or 2 (for L2), got {norm}")
    # Both ends, because a slice that is off by one leaves out the first or the last coordinate.
    corners = np.zeros((3 if dimension > 1 else 1, dimension))
    corners[0, 0] = 1.0
    corners[1:, -1] = 1.0
    corners[2:] = 1.0
    random = np.random.default_rng(seed).standard_normal((directions if dimension > 1 else 0, dimension))
    vectors = [radius * ray / np.linalg.norm(ray, norm) for ray in chain(corners, random)]
    zero = np.zeros(dimension)
    pairs = [(zero, vector) for vector in vectors]
    if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
        pairs += [(zero - vector, vector) for vector in vectors]
    return pairs
