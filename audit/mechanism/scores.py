"""Scores of a mechanism's outputs, learnt from frequencies in pilot trials: from tables of whole outputs, sums of
log-likelihood ratios, values that repeat, or lowest bits.

The sum of the ratios of single columns is the best score of independent coordinates, that of each column given the one
before it of a sequence with flags, such as the answers of a sparse vector technique.

Noise from a seed of few bits repeats whole outputs, and a value that leaks in one answer of a thousand repeats that
value, among noise that never repeats. Values are compared exactly, or rounded to a fraction of their spread.

The lowest bits reveal the input of noise that is added in floating point. Numbers lie closer together near 0 than far
from it. So ``x + noise`` near 0 is a multiple of the coarse spacing at x, while the noise alone is nearly never one
(Mironov 2012, "On significance of the least significant bits for differential privacy").
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..arrays import BoolArray, FloatArray, IntArray, held
from .columns import Cells, Columns, cells_of, finite, numbers, ratios

Counts = list[FloatArray]
"""How many outputs fall into each cell of each table of a score."""


class Score(Protocol):
    """The interface of a function that scores a mechanism's outputs; ``str(score)`` is its name in the results of an
    audit.
    """

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """Return one score per output: an array ``(n, ...)`` becomes ``(n,)``, higher means the second input."""


@runtime_checkable
class CountedScore(Score, Protocol):
    """The interface of a score made of tables of counts; the counts of further outputs can be added in little
    memory.
    """

    def count(self, outputs: NDArray[Any]) -> Counts:
        """Return the counts of outputs (n, ...), which may be added to the counts of further outputs."""

    def counted(self, member: Counts, nonmember: Counts) -> Self:
        """Return the score whose log-likelihood ratios come from these counts on the second and on the first input."""


# A table of more outputs than this has too few pilot trials per output; most continuous outputs are recognised by
# a first look at 4096 trials, without sorting the whole pilot.
_MOST, _LOOK = 1024, 4096
_Keys = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class FrequencyTable:
    """A table of the distinct outputs seen in pilot trials, with each one's log-likelihood ratio (second over first
    input).

    ``keys``: (k,), sorted, one per output that was seen; ``ratios``: (k,), the log of its frequency on the second input
    over that on the first. An output that was not seen has ratio 0, which favours neither input.
    """

    keys: _Keys
    ratios: FloatArray

    def __str__(self) -> str:
        return f"likelihood ratio of {len(self.keys)} outputs"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """Return the log-likelihood ratio of each output; a higher value means that the second input is more likely.

        An array ``(n, ...)`` of numbers or strings becomes ``(n,)``.
        """
        return self.of_keys(row_keys(outputs))

    def count(self, outputs: NDArray[Any]) -> Counts:
        """Count how often each output of the table occurs; outputs that are not in the table are ignored."""
        wanted = row_keys(outputs)
        at, seen = self._places(wanted)
        return [np.bincount(at[seen], minlength=len(self.keys)).astype(np.float64)]

    def counted(self, member: Counts, nonmember: Counts) -> "FrequencyTable":
        return FrequencyTable(self.keys, ratios(member[0], nonmember[0]))

    def of_keys(self, wanted: _Keys) -> FloatArray:
        """Return the log-likelihood ratio of each key (n,); 0 for a key that the pilot did not contain."""
        at, seen = self._places(wanted)
        return np.where(seen, self.ratios[at], 0.0)

    def _places(self, wanted: _Keys) -> tuple[IntArray, BoolArray]:
        """The place of each key in the table, and whether it is there."""
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return at, self.keys[at] == wanted


def tabulate(member: NDArray[Any], nonmember: NDArray[Any]) -> FrequencyTable | None:
    """Count how often each distinct output occurs in pilot trials on two inputs, and return the table of likelihood
    ratios.

    Half a count is added to every output of either input.

    None where nearly every output is distinct, or there are more than 1024.
    """
    look = np.concatenate([row_keys(member[:_LOOK]), row_keys(nonmember[:_LOOK])])
    if _too_many(look):
        return None
    keys_in, keys_out = row_keys(member), row_keys(nonmember)
    if _too_many(np.concatenate([keys_in, keys_out])):
        return None
    return frequencies(keys_in, keys_out)


def frequencies(keys_in: _Keys, keys_out: _Keys) -> FrequencyTable:
    """Count how often each distinct output, given as a 64-bit key, occurs on each of two inputs.

    ``keys_in``: (n1,) of the second input, ``keys_out``: (n0,) of the first.
    """
    # Half a count on both sides keeps every ratio finite.
    keys, codes = np.unique(np.concatenate([keys_in, keys_out]), return_inverse=True)
    counts_in = np.bincount(codes[: len(keys_in)], minlength=len(keys)) + 0.5
    counts_out = np.bincount(codes[len(keys_in) :], minlength=len(keys)) + 0.5
    return FrequencyTable(keys, np.log(counts_in / counts_in.sum()) - np.log(counts_out / counts_out.sum()))


def row_keys(outputs: NDArray[Any]) -> _Keys:
    """Return a 64-bit key for each output, equal for equal outputs: an array ``(n, ...)`` becomes ``(n,)``.

    Nearly all different outputs have different keys.

    Equality is by value: 1 and 1.0 have one key, and a whole number that float64 does not hold keeps its own 64 bits.
    Different outputs with one key fall into an event together, which may cost power and never costs validity.
    """
    rows = outputs.reshape(len(outputs), -1)
    if outputs.dtype.kind in "US":
        words, codes = np.unique(rows, return_inverse=True)
        bits = np.array([_of_text(str(word)) for word in words], dtype=np.uint64)[codes.reshape(rows.shape)]
    else:
        # Adding 0 turns -0.0 into 0.0, which have different bits and equal values.
        values = np.asarray(rows, dtype=np.float64) + 0.0
        # One NaN for all, which may have different bits.
        values = np.where(np.isnan(values), np.nan, values)
        bits = np.ascontiguousarray(values).view(np.uint64)
        if rows.dtype.kind in "iu" and not (exact := held(rows)).all():
            bits = np.where(exact, bits, rows.astype(np.uint64))
    if bits.shape[1] == 1:
        return np.ascontiguousarray(bits[:, 0])
    # Mixed column by column, so that outputs with the same numbers in another order get different keys.
    keys = np.zeros(len(bits), dtype=np.uint64)
    for column in bits.T:
        keys = _mixed(keys ^ _mixed(column)) + np.uint64(0x9E3779B97F4A7C15)
    return keys


def _too_many(keys: _Keys) -> bool:
    distinct = len(np.unique(keys))
    return distinct > _MOST or 2 * distinct > len(keys) + 2


def _of_text(word: str) -> int:
    # Not hash(): it is salted, and differs between two processes.
    data = word.encode("utf-8", "surrogatepass")
    return zlib.crc32(data) << 32 | zlib.crc32(data[::-1] + b"\x01")


def _mixed(bits: _Keys) -> _Keys:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit moves every other."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


# More trials per input place no quantile better, and take long to sort.
_SORTED = 100_000


@dataclass(frozen=True, eq=False)
class RowScore:
    """A named score: a function ``of`` outputs as rows of numbers (n, d); results of an audit show its name."""

    name: str
    of: Callable[[FloatArray], FloatArray]

    def __str__(self) -> str:
        return self.name

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(self.of(numbers(outputs)), dtype=np.float64)


def value(columns: Columns, sign: int) -> RowScore:
    """Return a score that is the single column of ``columns``, or its negative; this score resolves the tails more
    finely than any table.
    """
    return RowScore(f"{'-' if sign < 0 else ''}({columns})", lambda rows: sign * finite(columns.of(rows))[:, 0])


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
        return (
            f"likelihood ratio in {self.bins} bins of "
            f"{self.columns}{', with one table for all of them' if self.alike else ''}"
        )

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
    """A score that is the sum over ``columns`` of the log-likelihood ratio of each entry's cell, given the previous
    entry's frequent value (if any).

    ``tables``: (states before, cells) ratios per column.
    """

    columns: Columns
    cells: tuple[Cells, ...]
    tables: tuple[FloatArray, ...]
    bins: int

    def __str__(self) -> str:
        return f"likelihood ratio in {self.bins} bins of {self.columns}, each conditional on the one before"

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


GRIDS = (0, 36, 28, 20, 14)
"""Binary places to which values are rounded, in units of a coordinate's spread; 0 compares them exactly."""
# Sorting the keys of more coordinates takes longer than the rest of the search.
MOST_COLUMNS = 64


def learn_repeats(member: FloatArray, nonmember: FloatArray, places: int, *, together: bool) -> RowScore | None:
    """Learn a score of outputs (n, d) from a pilot: the sum, over the entries of an output, of the log-likelihood ratio
    of the entry's value in the pilot; a value that the pilot did not contain counts 0. Return None if no value repeats.

    ``places``: how many binary places of a coordinate's spread are compared, 0 for all of its bits. ``together``:
    whether an output is one value, or each entry is.
    """
    if (together and member.shape[1] == 1) or (not together and member.shape[1] > MOST_COLUMNS):
        return None
    grid = np.zeros(member.shape[1]) if places == 0 else _spread(np.concatenate([member, nonmember])) * 2.0**-places
    keys = [_keys(side, grid, together).reshape(-1) for side in (member, nonmember)]
    table = frequencies(*keys)
    if len(table.keys) == sum(map(len, keys)):
        return None

    def of(rows: FloatArray) -> FloatArray:
        wanted = _keys(rows, grid, together)
        scores: FloatArray = table.of_keys(wanted.reshape(-1)).reshape(wanted.shape).sum(axis=1)
        return scores

    rounded = f", rounded to {grid.max():.3g}" if grid.any() else ""
    return RowScore(f"{'outputs' if together else 'entries'} that also occur in pilot trials{rounded}", of)


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


# Binary exponents beyond these are counted with them; float64 has 53 bits.
_LEAST_BIT, _MOST_BIT = -80, 24
_SIZE = _MOST_BIT - _LEAST_BIT + 2
_COORDINATES = 64


def learn_low_bits(member: FloatArray, nonmember: FloatArray) -> RowScore:
    """Learn a score of outputs (n, d) from a pilot: the sum, over the first 64 coordinates, of the log-likelihood ratio
    of the pair (exponent of the number, exponent of its lowest bit).
    """
    tables = []
    for sides in zip(member.T[:_COORDINATES], nonmember.T[:_COORDINATES], strict=True):
        counts = [np.bincount(bit_cells(side), minlength=_SIZE**2).astype(float) for side in sides]
        tables.append(ratios(*counts))

    def of(rows: FloatArray) -> FloatArray:
        total: FloatArray = np.sum(
            [table[bit_cells(column)] for column, table in zip(rows.T, tables, strict=False)], axis=0
        )
        return total

    return RowScore("likelihood ratio of the size and the lowest bit of outputs", of)


def bit_cells(values: FloatArray) -> IntArray:
    """Return a whole number per value that encodes the pair (exponent, exponent of the lowest bit that is set).

    0, NaN and infinities are a pair of their own.
    """
    usable = np.isfinite(values) & (values != 0)
    fraction, exponent = np.frexp(np.where(usable, values, 1.0))
    # The 53 bits of the mantissa as a whole number; its last set bit is the value and-ed with its negative.
    mantissa = np.abs(fraction * 2.0**53).astype(np.int64)
    lowest = np.frexp((mantissa & -mantissa).astype(np.float64))[1] + exponent - 53
    first, second = (np.clip(part, _LEAST_BIT, _MOST_BIT) - _LEAST_BIT + 1 for part in (exponent, lowest))
    return np.asarray(np.where(usable, first * _SIZE + second, 0), dtype=np.int64)
