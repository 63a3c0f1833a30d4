"""Scores that add up log-likelihood ratios of single columns, or of each column given the one before it.

The first is the best score of independent coordinates, the second of a sequence with flags, such as the answers of a
sparse vector technique.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from .cells import Cells, cells_of, ratios
from .columns import Columns
from .numbers import finite, numbers


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

    ``tables``: (cells,) ratios per column. The sum is the likelihood ratio where columns are independent.
    """

    columns: Columns
    cells: tuple[Cells, ...]
    tables: tuple[FloatArray, ...]
    bins: int

    def __str__(self) -> str:
        return f"likelihood ratio in {self.bins} bins of {self.columns}"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        rows = self.columns.of(numbers(outputs))
        total = np.zeros(len(rows))
        for column, cells, table in zip(rows.T, self.cells, self.tables, strict=True):
            if table.any():
                total += table[cells.of(column)]
        return total


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
        rows = self.columns.of(numbers(outputs))
        total, before = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
        for column, cells, table in zip(rows.T, self.cells, self.tables, strict=True):
            found = cells.of(column)
            total += table[before, found]
            before = cells.state(found)
        return total


def learn_marginals(member: FloatArray, nonmember: FloatArray, columns: Columns, bins: int) -> Marginals:
    """Fit a ``Marginals`` score to pilot outputs (n, d) of the second and of the first input."""
    cells, tables = [], []
    for inside, outside in zip(columns.of(member).T, columns.of(nonmember).T, strict=True):
        cells.append(cells_of(np.concatenate([inside, outside]), bins))
        counts = [np.bincount(cells[-1].of(side), minlength=cells[-1].size).astype(float) for side in (inside, outside)]
        tables.append(ratios(*counts))
    return Marginals(columns, tuple(cells), tuple(tables), bins)


def learn_chain(member: FloatArray, nonmember: FloatArray, columns: Columns, bins: int) -> Chain:
    """Fit a ``Chain`` score to pilot outputs (n, d) of the second and of the first input."""
    sides = columns.of(member), columns.of(nonmember)
    before = [np.zeros(len(side), dtype=np.int64) for side in sides]
    states, cells, tables = 1, [], []
    for column in range(sides[0].shape[1]):
        found = cells_of(np.concatenate([side[:, column] for side in sides]), bins)
        at = [found.of(side[:, column]) for side in sides]
        counts = [
            np.bincount(past * found.size + now, minlength=states * found.size)
            .reshape(states, found.size)
            .astype(float)
            for past, now in zip(before, at, strict=True)
        ]
        cells.append(found)
        tables.append(ratios(*counts))
        before, states = [found.state(now) for now in at], 2 + len(found.atoms)
    return Chain(columns, tuple(cells), tuple(tables), bins)
