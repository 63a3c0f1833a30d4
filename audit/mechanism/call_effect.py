"""Tests whether the trials that a mechanism draws in one call depend on each other (shared noise).

A one-way analysis of variance of ranks, calls against rows within calls, for each coordinate by itself (Kruskal
and Wallis 1952, with the F distribution of Conover and Iman 1981). Ranks have a variance whatever the noise, while
Cauchy noise, for one, has none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from ..arrays import FloatArray

MOST_TESTED = 16
"""The number of coordinates that are tested, from the first."""


def call_effect(outputs: NDArray[Any]) -> FloatArray:
    """Test whether the trials that a mechanism draws in one call, one per output row, are independent; return one
    p-value for each output coordinate.

    Under the hypothesis, rows of one call depend on each other no more than rows of different calls.

    ``outputs``: (calls, rows, ...) numbers -> (coordinates,). A coordinate that is constant everywhere has p-value 1.
    """
    calls, rows = outputs.shape[:2]
    columns = outputs.reshape(calls * rows, -1).T[:MOST_TESTED]
    return np.array([_p_value(_ranks(column).reshape(calls, rows)) for column in columns])


def _ranks(values: NDArray[Any]) -> FloatArray:
    # Tied values share their mean rank, so that ties alone make no call differ from another.
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
    # Without variance within calls F is infinite, and its p-value 0.
    return float(fdtrc(*freedom, between / freedom[0] / (within / freedom[1]))) if within else 0.0
