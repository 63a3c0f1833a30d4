"""Neighbours: pairs of inputs that show most of a mechanism which takes vectors of bounded norm."""

import math
from itertools import chain

import numpy as np

from ..arrays import FloatArray
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
    """Candidate pairs (x0, x1), each (dimension,), of L2 or L1 norm ``radius`` or 0: for ``pairs`` of an audit.

    Along the first coordinate, the last, all of them alike, and as many random ``directions``: zero against the vector;
    where one may be replaced by another also the vector against its opposite, twice as far apart. Add/remove and
    zero-out neighbours begin at zero: what is away adds nothing. No list of pairs proves the worst one found.

    Raises ValueError unless dimension >= 1, radius > 0 and finite, norm is 1 or 2, directions >= 0.
    """
    if dimension < 1 or directions < 0:
        raise ValueError(f"dimension must be >= 1 and directions >= 0, got {dimension} and {directions}")
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be > 0 and finite, got {radius}")
    if norm not in (1, 2):
        raise ValueError(f"norm must be 1 or 2, got {norm}")
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
