"""A score for outputs that repeat: values that the pilot saw on one input and not on the other.

Noise from a seed of few bits repeats whole outputs, and a value that leaks in one answer of a thousand repeats that
value, among noise that never repeats. Values are compared exactly, or rounded to a fraction of their spread.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from .numbers import numbers
from .output_table import FrequencyTable, frequencies, row_keys

GRIDS = (0, 36, 28, 20, 14)
"""Binary places to which values are rounded, in units of a coordinate's spread; 0 compares them exactly."""
# Sorting the keys of more coordinates takes longer than the rest of the search.
MOST_COLUMNS = 64


@dataclass(frozen=True, eq=False)
class Repeats:
    """A score that adds up, over the entries of an output, the log-likelihood ratio of that value in the pilot.

    ``grid``: (d,) the width to which entries are rounded, 0 for none; ``together``: whether an output is one value or
    each entry is. A value that the pilot did not see counts 0.
    """

    table: FrequencyTable
    grid: FloatArray
    together: bool

    def __str__(self) -> str:
        what = "outputs" if self.together else "entries"
        return f"{what} that repeat the pilot's" + (f", rounded to {self.grid.max():.3g}" if self.grid.any() else "")

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        keys = _keys(numbers(outputs), self.grid, self.together)
        scores: FloatArray = self.table.of_keys(keys.reshape(-1)).reshape(keys.shape).sum(axis=1)
        return scores


def learn_repeats(member: FloatArray, nonmember: FloatArray, places: int, *, together: bool) -> Repeats | None:
    """Fit a ``Repeats`` score to pilot outputs (n, d); None where no value repeats.

    ``places``: how many binary places of a coordinate's spread are compared, 0 for all of its bits.
    """
    if (together and member.shape[1] == 1) or (not together and member.shape[1] > MOST_COLUMNS):
        return None
    grid = np.zeros(member.shape[1]) if places == 0 else _spread(np.concatenate([member, nonmember])) * 2.0**-places
    keys = [_keys(side, grid, together).reshape(-1) for side in (member, nonmember)]
    table = frequencies(*keys)
    return Repeats(table, grid, together) if len(table.keys) < sum(map(len, keys)) else None


def _keys(rows: FloatArray, grid: FloatArray, together: bool) -> NDArray[np.uint64]:
    if grid.any():
        with np.errstate(invalid="ignore", over="ignore"):
            rows = np.where(grid > 0, np.round(rows / np.where(grid > 0, grid, 1.0)), rows)
    if together:
        return row_keys(rows)[:, np.newaxis]
    # The number of the column is part of the key, because the same value means something else there.
    columns = [row_keys(np.stack([column, np.full(len(rows), float(at))], axis=1)) for at, column in enumerate(rows.T)]
    return np.stack(columns, axis=1)


def _spread(rows: FloatArray) -> FloatArray:
    known = np.where(np.isfinite(rows), rows, np.nan)
    # A column without a number has spread 0, so it is compared exactly.
    known = np.where(np.isnan(known).all(axis=0), 0.0, known)
    high, low = np.nanquantile(known, [0.75, 0.25], axis=0)
    return np.asarray(high - low, dtype=np.float64)
