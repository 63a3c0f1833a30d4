"""A score of the lowest bits of floating-point outputs, which reveal the input of noise that is added in floating
point.

Numbers lie closer together near 0 than far from it. So ``x + noise`` near 0 is a multiple of the coarse spacing at x,
while the noise alone is nearly never one (Mironov 2012, "On significance of the least significant bits for differential
privacy").
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from .cells import ratios
from .numbers import numbers

# Binary exponents beyond these are counted with them; float64 has 53 bits.
_LEAST, _MOST = -80, 24
_SIZE = _MOST - _LEAST + 2
_COORDINATES = 64


@dataclass(frozen=True, eq=False)
class LowBits:
    """A score that adds up, over the first coordinates, the log-likelihood ratio of the pair (exponent of the number,
    exponent of its lowest bit).

    ``tables``: (pairs,) ratios per coordinate, of 64 at most.
    """

    tables: tuple[FloatArray, ...]

    def __str__(self) -> str:
        return "likelihood ratio of size and lowest bit"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        columns = zip(numbers(outputs).T, self.tables, strict=False)
        total: FloatArray = np.sum([table[bit_cells(column)] for column, table in columns], axis=0)
        return total


def learn_low_bits(member: FloatArray, nonmember: FloatArray) -> LowBits:
    """Fit a ``LowBits`` score to pilot outputs (n, d) of the second and of the first input."""
    tables = []
    for sides in zip(member.T[:_COORDINATES], nonmember.T[:_COORDINATES], strict=True):
        counts = [np.bincount(bit_cells(side), minlength=_SIZE**2).astype(float) for side in sides]
        tables.append(ratios(*counts))
    return LowBits(tuple(tables))


def bit_cells(values: FloatArray) -> IntArray:
    """Return a whole number per value, that of its pair (exponent, exponent of the lowest bit that is set).

    0, NaN and infinities are a pair of their own.
    """
    usable = np.isfinite(values) & (values != 0)
    fraction, exponent = np.frexp(np.where(usable, values, 1.0))
    # The 53 bits of the mantissa as a whole number; its last set bit is the value and-ed with its negative.
    mantissa = np.abs(fraction * 2.0**53).astype(np.int64)
    lowest = np.frexp((mantissa & -mantissa).astype(np.float64))[1] + exponent - 53
    first, second = (np.clip(part, _LEAST, _MOST) - _LEAST + 1 for part in (exponent, lowest))
    return np.asarray(np.where(usable, first * _SIZE + second, 0), dtype=np.int64)
