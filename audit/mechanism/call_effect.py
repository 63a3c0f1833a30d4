"""Call effect: whether the rows of one call of a batched mechanism hang together, as they do where they share noise.

A one-way analysis of variance of ranks, calls against rows within calls, coordinate by coordinate (Kruskal and Wallis
1952; read by the F distribution, Conover and Iman 1981). Ranks have variances whatever the law of the noise.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from ..arrays import FloatArray

MOST_TESTED = 16
"""Coordinates, the first ones."""


def call_effect(outputs: NDArray[Any]) -> FloatArray:
    """``outputs``: (calls, rows, ...) numbers -> (coordinates,) p-values that the rows of a call hang together no more
    than those of different calls. A coordinate that is constant everywhere has p-value 1.
    """
    calls, rows = outputs.shape[:2]
    columns = outputs.reshape(calls * rows, -1).T[:MOST_TESTED]
    return np.array([_p_value(_ranks(column).reshape(calls, rows)) for column in columns])


def _ranks(values: NDArray[Any]) -> FloatArray:
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[codes.reshape(-1)], dtype=np.float64)


def _p_value(ranks: FloatArray) -> float:
    calls, rows = ranks.shape
    means = ranks.mean(axis=1, keepdims=True)
    between = rows * float(np.sum((means - ranks.mean()) ** 2))
    within = float(np.sum((ranks - means) ** 2))
    if between + within == 0:
        return 1.0
    freedom = calls - 1, calls * (rows - 1)
    # Nothing left within calls: an infinite F.
    return float(fdtrc(*freedom, between / freedom[0] / (within / freedom[1]))) if within else 0.0
