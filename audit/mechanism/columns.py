"""Converts a mechanism's outputs to columns of numbers, from which scores are learnt, and divides a column into cells.

Each frequent value is a cell of its own, and intervals hold the rest. So a coordinate may be discrete, continuous or
both at once, and may be NaN or infinite.

Structure that no single coordinate shows is a column here: the difference of two coordinates (which is also the XOR of
two bits), products of a few, steps along a sequence, a row's smallest and largest entry, the parity of its bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray, as_floats

# The square of a larger number overflows.
_LARGEST = 1e150


def numbers(outputs: NDArray[Any]) -> FloatArray:
    """Return outputs (n, ...) as an array (n, d) of float64; NaN and infinities stay.

    Raises ValueError for whole numbers that float64 does not hold.
    """
    rows = as_floats("outputs", outputs)
    return rows if rows.ndim == 2 else rows.reshape(len(outputs), -1)


def finite(rows: FloatArray) -> FloatArray:
    """Return rows of numbers prepared for a score that multiplies them: NaN becomes 0, and values beyond 1e150 are
    cut.
    """
    return np.clip(np.nan_to_num(rows, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST)


# A value that this share of the pilot repeats is a cell of its own; a continuous coordinate has no such value.
_SHARE, _FEWEST, _MOST = 4000, 8, 256
# A ratio this many standard errors from 0 is no accident of a few hundred cells, and is not shrunk.
_CLEAR = 4.0
# So few edges are compared one by one sooner than they are searched.
_FEW = 16


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of the numbers: cell 0 is NaN, then one cell per value in ``atoms``, then the intervals between
    ``edges``. Both ``atoms`` and ``edges`` are sorted.
    """

    atoms: FloatArray
    edges: FloatArray

    @property
    def size(self) -> int:
        """The number of cells in the partition."""
        return 2 + len(self.atoms) + len(self.edges)

    def of(self, values: FloatArray) -> IntArray:
        """Return the number of the cell of each value, from 0 to ``size`` - 1."""
        first = 1 + len(self.atoms)
        found = first + _below(self.edges, values)
        if len(self.atoms):
            at = np.minimum(np.searchsorted(self.atoms, values), len(self.atoms) - 1)
            found = np.where(self.atoms[at] == values, 1 + at, found)
        return np.asarray(np.where(np.isnan(values), 0, found), dtype=np.int64)

    def state(self, cells: IntArray) -> IntArray:
        """Merge all intervals into one cell: NaN, each frequent value, and any other number remain distinct."""
        return np.minimum(cells, 1 + len(self.atoms))


def _below(edges: FloatArray, values: FloatArray) -> IntArray:
    """How many edges lie below each value."""
    if len(edges) > _FEW:
        return np.searchsorted(edges, values)
    below = np.zeros(len(values), dtype=np.int64)
    for edge in edges:
        below += values > edge
    return below


def cells_of(values: FloatArray, bins: int) -> Cells:
    """Fit cells to the pilot values of one coordinate: ``bins`` intervals of equal frequency besides the frequent
    values.

    ``values``: (n,) of both inputs together.
    """
    known = values[~np.isnan(values)]
    levels, counts = np.unique(known, return_counts=True)
    frequent = counts >= max(_FEWEST, len(values) // _SHARE)
    if np.count_nonzero(frequent) > _MOST:
        frequent &= counts >= np.sort(counts)[-_MOST]
    atoms = levels[frequent]
    rest = np.repeat(levels[~frequent], counts[~frequent])
    # One quantile of the sorted values each, because an interpolated one of infinities is NaN.
    at = (np.arange(1, bins) * len(rest)) // bins
    return Cells(atoms, np.unique(rest[at]) if len(rest) else rest)


def ratios(counts_in: FloatArray, counts_out: FloatArray) -> FloatArray:
    """Return the log-likelihood ratio of each cell, from the pilot counts on the second and on the first input; ratios
    that chance can explain are shrunk towards 0.

    Counts of any shape; the last axis lists the cells of one distribution. Half a count is added to each.
    """
    more_in, more_out = counts_in + 0.5, counts_out + 0.5
    share_in = more_in / more_in.sum(axis=-1, keepdims=True)
    share_out = more_out / more_out.sum(axis=-1, keepdims=True)
    seen = np.log(share_in) - np.log(share_out)
    error = 1 / more_in + 1 / more_out
    # Empirical Bayes (James and Stein 1961): what the ratios vary beyond their errors is their own variance.
    weight = (share_in + share_out) / 2
    spread = np.maximum(0.0, (weight * (seen**2 - error)).sum(axis=-1, keepdims=True))
    share = np.where(seen**2 > _CLEAR**2 * error, 1.0, spread / (spread + error))
    return np.asarray(seen * share, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Columns:
    """A named function ``of`` that computes columns (n, k) from outputs (n, d); results of an audit show its name."""

    name: str
    of: Callable[[FloatArray], FloatArray]

    def __str__(self) -> str:
        return self.name


def coordinates(chosen: IntArray | None = None) -> Columns:
    """Return some coordinates of the output, or all of them if ``chosen`` is None."""
    if chosen is None:
        return Columns("the output", lambda outputs: outputs)
    name = f"the coordinate {chosen[0]}" if len(chosen) == 1 else f"{len(chosen)} coordinates"
    return Columns(name, lambda outputs: outputs[:, chosen])


def steps() -> Columns:
    """Return the first coordinate, and the difference of each coordinate from the one before it."""

    def of(outputs: FloatArray) -> FloatArray:
        # Infinite entries differ by NaN, which is a cell of its own.
        with np.errstate(invalid="ignore", over="ignore"):
            return np.diff(outputs, axis=1, prepend=0.0)

    return Columns("the differences between consecutive coordinates", of)


def difference(first: int, second: int) -> Columns:
    """Return the difference of two coordinates; for two bits, it is 0 if their XOR is 0."""

    def of(outputs: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", over="ignore"):
            return outputs[:, [first]] - outputs[:, [second]]

    return Columns(f"the difference of the coordinates {first} and {second}", of)


def product(places: IntArray, centre: FloatArray, spread: FloatArray) -> Columns:
    """Return the product of a few coordinates, each centred, divided by its spread and cut at 3; for bits, this is
    their XOR. The product reveals a dependence that no single coordinate shows.
    """
    return Columns(
        f"the product of the coordinates {', '.join(map(str, places[:-1]))} and {places[-1]}",
        lambda outputs: standardised(outputs[:, places], centre, spread).prod(axis=1, keepdims=True),
    )


def standardised(outputs: FloatArray, centre: FloatArray, spread: FloatArray) -> FloatArray:
    """Return the outputs minus their centres, divided by their spreads and cut at 3; NaN becomes 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.nan_to_num(np.clip((outputs - centre) / spread, -3.0, 3.0)))


def _known(outputs: FloatArray) -> FloatArray:
    return np.where(np.isnan(outputs), 0.0, np.clip(outputs, -1e300, 1e300))


_SUMMARIES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "sum": lambda outputs: _known(outputs).sum(axis=1),
    "smallest entry": lambda outputs: _known(outputs).min(axis=1),
    "largest entry": lambda outputs: _known(outputs).max(axis=1),
    "range": lambda outputs: np.ptp(_known(outputs), axis=1),
    "sum of sizes": lambda outputs: np.abs(_known(outputs)).sum(axis=1),
    # Large numbers are even in float64, so that their parity is 0.
    "parity": lambda outputs: np.mod(np.round(_known(outputs)), 2).sum(axis=1) % 2,
    "sign of the product": lambda outputs: np.sign(_known(outputs)).prod(axis=1),
    "NaN": lambda outputs: np.isnan(outputs).sum(axis=1),
}
SUMMARIES = tuple(_SUMMARIES)


def summary(name: str) -> Columns:
    """Compute one number from each row as a whole, such as a mean; ``SUMMARIES`` lists the names."""
    words = f"the number of {name}" if name == "NaN" else f"the {name} of each output"
    return Columns(words, lambda outputs: _summarised(outputs, name))


def summaries(outputs: FloatArray) -> FloatArray:
    """Return the columns of ``SUMMARIES`` for outputs (n, d)."""
    return np.concatenate([_summarised(outputs, name) for name in SUMMARIES], axis=1)


def _summarised(outputs: FloatArray, name: str) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(_SUMMARIES[name](outputs), dtype=np.float64)[:, np.newaxis]
