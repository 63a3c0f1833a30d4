"""Tests whether the runs that are made together in one block depend on each other, such as by one noise for all."""

from collections.abc import Callable

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.mechanism.trial_stream import MOST_TESTED, dependence

BLOCKS, ROWS = 16, 16
"""Blocks of a series, and runs of each."""
LEVEL = 1e-6
"""Probability, per number, that one series of independent runs is taken for dependent; two series must agree."""
_TWICE = 8
"""Blocks in which a number occurs twice, while none occurs in two blocks; of independent runs at most 17^-8 likely."""
_DIGITS = 9
"""Digits of the numbers that are compared."""
_REMEDY = "a hook must draw noise for all replicas, the first dimension of values"


def dependent(numbers: Callable[[int, int], FloatArray]) -> str:
    """Return how runs depend on each other, in words; empty string if nothing shows that they do.

    ``numbers``: (number of a block, runs) -> (runs, numbers), of blocks that were not used yet. At most
    ``call_effect.MOST_TESTED`` numbers are looked at.
    """
    first = _series(numbers, 0)
    if (first == first[0]).all() and (first[0] != first[0][0]).any():
        return (
            "the defense draws no noise, or the same in all blocks of runs: a hook must draw it from the generator "
            "that it receives"
        )
    if any(_repeats(column) for column in np.moveaxis(first, 2, 0)):
        return f"runs of one block have the same noise: {_REMEDY}"
    level = LEVEL * min(MOST_TESTED, first.shape[2])
    if dependence(lambda series: _series(numbers, series) if series else first, level) is not None:
        return f"runs of one block depend on each other: {_REMEDY}"
    return ""


def _series(numbers: Callable[[int, int], FloatArray], series: int) -> FloatArray:
    found = np.nan_to_num(np.stack([numbers(series * BLOCKS + block, ROWS) for block in range(BLOCKS)]))
    # Equal runs may differ in their last digits, by their places in a block.
    return np.asarray(np.round(found / np.maximum(np.abs(found).max((0, 1)), 1e-300), _DIGITS))


def _repeats(column: FloatArray) -> bool:
    """Whether numbers ``(blocks, runs)`` occur twice in many blocks, and none occurs in two."""
    distinct = [np.unique(block) for block in column]
    within = sum(len(block) < column.shape[1] for block in distinct)
    return within >= _TWICE and len(np.unique(column)) == sum(len(block) for block in distinct)
