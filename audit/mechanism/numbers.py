"""A mechanism's outputs as rows of numbers, which may be NaN or infinite."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..exact import as_floats

# The square of a larger number overflows.
_LARGEST = 1e150


def numbers(outputs: NDArray[Any]) -> FloatArray:
    """Return outputs (n, ...) as an array (n, d) of float64; NaN and infinities stay.

    Raises ValueError for whole numbers that float64 does not hold.
    """
    return as_floats("outputs", outputs).reshape(len(outputs), -1)


def finite(rows: FloatArray) -> FloatArray:
    """Return rows of numbers for a score that multiplies them: NaN is 0, and larger numbers are cut at 1e150."""
    return np.clip(np.nan_to_num(rows, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST)
