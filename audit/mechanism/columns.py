"""Columns of numbers that are computed from a mechanism's outputs, one row per output, for scores to be learnt on.

Structure that no single coordinate shows is a column here: the difference of two coordinates (which is also the XOR
of two bits), products of a few, steps along a sequence, a row's smallest and largest entry, the parity of its bits.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import FloatArray, IntArray


class Columns(Protocol):
    """The interface of a function from outputs to columns; ``str(columns)`` is its name in the results of an audit."""

    def of(self, outputs: FloatArray) -> FloatArray:
        """Return an array (n, k) for an array (n, d)."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Some coordinates of the output, or all of them where ``chosen`` is None."""

    chosen: IntArray | None = None

    def __str__(self) -> str:
        if self.chosen is None:
            return "the output"
        return f"the coordinate {self.chosen[0]}" if len(self.chosen) == 1 else f"{len(self.chosen)} coordinates"

    def of(self, outputs: FloatArray) -> FloatArray:
        return outputs if self.chosen is None else outputs[:, self.chosen]


@dataclass(frozen=True)
class Steps:
    """The first coordinate, and the difference of each coordinate from the one before it."""

    def __str__(self) -> str:
        return "the steps from coordinate to coordinate"

    def of(self, outputs: FloatArray) -> FloatArray:
        # Infinite entries differ by NaN, which is a cell of its own.
        with np.errstate(invalid="ignore", over="ignore"):
            return np.diff(outputs, axis=1, prepend=0.0)


@dataclass(frozen=True)
class Difference:
    """The difference of two coordinates; of two bits, it is 0 where their XOR is."""

    first: int
    second: int

    def __str__(self) -> str:
        return f"the difference of the coordinates {self.first} and {self.second}"

    def of(self, outputs: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", over="ignore"):
            return outputs[:, [self.first]] - outputs[:, [self.second]]


@dataclass(frozen=True, eq=False)
class Product:
    """The product of a few coordinates, each less its centre and in units of its spread, cut at 3; of bits, it is their
    XOR. It shows a dependence that no single coordinate does.
    """

    places: IntArray
    centre: FloatArray
    spread: FloatArray

    def __str__(self) -> str:
        return f"the product of the coordinates {', '.join(map(str, self.places[:-1]))} and {self.places[-1]}"

    def of(self, outputs: FloatArray) -> FloatArray:
        chosen = standardised(outputs[:, self.places], self.centre, self.spread)
        return np.asarray(chosen.prod(axis=1, keepdims=True))


def standardised(outputs: FloatArray, centre: FloatArray, spread: FloatArray) -> FloatArray:
    """Return outputs less their centres, in units of their spreads, cut at 3; 0 for NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.nan_to_num(np.clip((outputs - centre) / spread, -3.0, 3.0)))


SUMMARIES = ("sum", "smallest entry", "largest entry", "range", "sum of sizes", "parity", "sign of the product", "NaN")


@dataclass(frozen=True)
class Summary:
    """One number of a whole row, by its name in ``SUMMARIES``."""

    name: str

    def __str__(self) -> str:
        return f"the number of {self.name}" if self.name == "NaN" else f"the {self.name} of each output"

    def of(self, outputs: FloatArray) -> FloatArray:
        return summaries(outputs)[:, [SUMMARIES.index(self.name)]]


def summaries(outputs: FloatArray) -> FloatArray:
    """Return the columns of ``SUMMARIES`` for outputs (n, d)."""
    unknown = np.isnan(outputs)
    known = np.where(unknown, 0.0, np.clip(outputs, -1e300, 1e300))
    low, high = known.min(axis=1), known.max(axis=1)
    with np.errstate(over="ignore"):
        total, size = known.sum(axis=1), np.abs(known).sum(axis=1)
        # Large numbers are even in float64, so that their parity is 0.
        parity = np.mod(np.round(known), 2).sum(axis=1) % 2
        spread = high - low
    return np.stack(
        [total, low, high, spread, size, parity, np.sign(known).prod(axis=1), unknown.sum(axis=1)], axis=1
    ).astype(np.float64)
