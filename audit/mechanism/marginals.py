"""Scores that add up log-likelihood ratios of single columns, or of each column given the one before it.

The first is the best score of independent coordinates, the second of a sequence with flags, such as the answers of a
sparse vector technique.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from .cells import Cells, cells_of, ratios
from .columns import Columns
from .numbers import finite, numbers
from .score import Counts

# More trials per input place no quantile better, and take long to sort.
_SORTED = 100_000


@dataclass(frozen=True, eq=False)
class Value:
    """A score that is the value of the one column of ``columns``, or the negative value; no table is as fine in the
    tails.
    """

    columns: Columns
    sign: int

    def __str__(self) -> str:
        return f"{'-' if self.sign < 0 else ''}({self.columns})"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return self.sign * finite(self.columns.of(numbers(outputs)))[:, 0]


@dataclass(frozen=True, eq=False)
class Marginals:
    """A score that is the sum over ``columns`` of the log-likelihood ratio of the cell into which each entry falls.

    ``tables``: (cells,) ratios per column. The sum is the likelihood ratio where columns are independent. ``alike``:
    whether all columns share cells and table, which are then learnt from so many times the trials.
    """

    columns: Columns
    cells: tuple[Cells, ...]
    tables: tuple[FloatArray, ...]
    bins: int
    alike: bool = False

    def __str__(self) -> str:
        return f"likelihood ratio in {self.bins} bins of {self.columns}{', all alike' if self.alike else ''}"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        rows = self.columns.of(numbers(outputs))
        total = np.zeros(len(rows))
        for column, cells, table in zip(rows.T, self.cells, self.tables, strict=True):
            if table.any():
                total += table[cells.of(column)]
        return total

    def count(self, outputs: NDArray[Any]) -> Counts:
        rows = self.columns.of(numbers(outputs))
        return [_counts(cells.of(column), cells.size) for column, cells in zip(rows.T, self.cells, strict=True)]

    def counted(self, member: Counts, nonmember: Counts) -> "Marginals":
        if self.alike:
            table = ratios(np.sum(member, axis=0), np.sum(nonmember, axis=0))
            return replace(self, tables=(table,) * len(self.cells))
        return replace(self, tables=tuple(map(ratios, member, nonmember)))


@dataclass(frozen=True, eq=False)
class Chain:
    """A score that is the sum over ``columns`` of the log-likelihood ratio of each entry's cell, given the frequent
    value (if any) before it.

    ``tables``: (states before, cells) ratios per column.
    """

    columns: Columns
    cells: tuple[Cells, ...]
    tables: tuple[FloatArray, ...]
    bins: int

    def __str__(self) -> str:
        return f"likelihood ratio in {self.bins} bins of {self.columns}, each given the one before"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        total = np.zeros(len(outputs))
        for (before, found), table in zip(self._steps(outputs), self.tables, strict=True):
            total += table[before, found]
        return total

    def count(self, outputs: NDArray[Any]) -> Counts:
        counts, states = [], 1
        for (before, found), cells in zip(self._steps(outputs), self.cells, strict=True):
            joint = _counts(before * cells.size + found, states * cells.size)
            counts.append(joint.reshape(states, cells.size))
            states = 2 + len(cells.atoms)
        return counts

    def counted(self, member: Counts, nonmember: Counts) -> "Chain":
        return replace(self, tables=tuple(map(ratios, member, nonmember)))

    def _steps(self, outputs: NDArray[Any]) -> Iterator[tuple[IntArray, IntArray]]:
        """The state before each column and the cell in it."""
        before = np.zeros(len(outputs), dtype=np.int64)
        for column, cells in zip(self.columns.of(numbers(outputs)).T, self.cells, strict=True):
            found = cells.of(column)
            yield before, found
            before = cells.state(found)


def learn_marginals(
    member: FloatArray, nonmember: FloatArray, columns: Columns, bins: int, *, alike: bool = False
) -> Marginals:
    """Fit a ``Marginals`` score to pilot outputs (n, d) of the second and of the first input."""
    cells = _cells(member, nonmember, columns, bins)
    if alike:
        few = [columns.of(side[: max(1, _SORTED // len(cells))]).reshape(-1) for side in (member, nonmember)]
        cells = (cells_of(np.concatenate(few), bins),) * len(cells)
    blank = Marginals(columns, cells, (), bins, alike)
    return blank.counted(blank.count(member), blank.count(nonmember))


def learn_chain(member: FloatArray, nonmember: FloatArray, columns: Columns, bins: int) -> Chain:
    """Fit a ``Chain`` score to pilot outputs (n, d) of the second and of the first input."""
    blank = Chain(columns, _cells(member, nonmember, columns, bins), (), bins)
    return blank.counted(blank.count(member), blank.count(nonmember))


def _cells(member: FloatArray, nonmember: FloatArray, columns: Columns, bins: int) -> tuple[Cells, ...]:
    both = zip(columns.of(member[:_SORTED]).T, columns.of(nonmember[:_SORTED]).T, strict=True)
    return tuple(cells_of(np.concatenate(sides), bins) for sides in both)


def _counts(cells: IntArray, size: int) -> FloatArray:
    return np.bincount(cells, minlength=size).astype(np.float64)
