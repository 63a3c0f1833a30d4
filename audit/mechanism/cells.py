"""Cells of one coordinate of a mechanism's outputs: each frequent value is a cell of its own, and intervals hold the
rest.

So a coordinate may be discrete, continuous or both at once, and may be NaN or infinite.
"""

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray, IntArray

# A value that this share of the pilot repeats is a cell of its own; a continuous coordinate has no such value.
_SHARE, _FEWEST, _MOST = 4000, 8, 256
# A ratio this many standard errors from 0 is no accident of a few hundred cells, and is not shrunk.
_CLEAR = 4.0
# So few edges are compared one by one sooner than they are searched.
_FEW = 16


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of the numbers: cell 0 is NaN, then one cell per value in ``atoms``, then the intervals between
    ``edges``. Both are sorted.
    """

    atoms: FloatArray
    edges: FloatArray

    @property
    def size(self) -> int:
        """The number of cells."""
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
        """Return the cells with all intervals as one: NaN, each frequent value, any other number."""
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
    """Return the log-likelihood ratio of each cell, from the pilot counts on the second and on the first input, drawn
    towards 0 as far as the counts explain it by chance.

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
