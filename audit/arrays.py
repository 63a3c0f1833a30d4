"""Type names of numpy arrays, and the exact conversion to float64, which refuses whole numbers that it would round."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .wording import shortened

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


_BITS, _LARGEST = 53, 1023


def as_floats(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as float64: a copy, or the array itself if it is read-only and no view of another array.

    Raises ValueError for values that are not an array of numbers, and for whole numbers that float64 cannot hold
    exactly.
    """
    frozen = isinstance(values, np.ndarray) and values.flags.owndata and not values.flags.writeable
    if frozen and type(values) is np.ndarray and values.dtype == np.float64:
        return values
    refuse_lost(name, values)
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers, got {shortened(values)}") from None


def refuse_lost(name: str, values: Any) -> None:
    """Raise ValueError if a whole number among ``values`` would become another number in float64."""
    if (lost := _first_lost(values)) is not None:
        raise ValueError(
            f"{name} must be numbers that float64 holds exactly (whole numbers up to 2^53), got {shortened(lost)}"
        )


def held(values: NDArray[Any]) -> BoolArray:
    """Return, for each whole number, whether float64 represents it exactly; integers of any width or sign are
    accepted.
    """
    if values.dtype.itemsize < 8:
        return np.ones(values.shape, dtype=np.bool_)
    sizes = values.astype(np.uint64)
    if values.dtype.kind == "i":
        sizes = np.where(values < 0, np.uint64(0) - sizes, sizes)
    # Divided by its last set bit, an exactly held number fits into the 53 bits of the mantissa.
    last = np.maximum(sizes & (np.uint64(0) - sizes), np.uint64(1))
    return np.asarray(sizes // last < np.uint64(2**_BITS), dtype=np.bool_)


def _first_lost(values: Any) -> int | None:
    """The first whole number that float64 does not hold; None where there is none."""
    # Lists are searched item by item, because numpy turns whole numbers into floats when they stand among floats.
    if isinstance(values, list | tuple):
        return next((lost for value in values if (lost := _first_lost(value)) is not None), None)
    if isinstance(values, float | bool):
        return None
    if isinstance(values, int):
        return None if abs(values) < 2**_LARGEST and int(float(values)) == values else values
    array = np.asarray(values)
    if array.dtype.kind == "O":
        # Any other object, such as None, would become an array of itself again and again.
        return _first_lost(array.ravel().tolist()) if array.ndim or isinstance(values, np.ndarray) else None
    if array.dtype.kind not in "iu" or (exact := held(array)).all():
        return None
    return int(array[~exact].flat[0])
