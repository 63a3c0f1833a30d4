"""Reads the arrays and options that a user supplies to an audit, from NumPy, pandas or PyTorch, and checks them."""

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..binomial import check_number
from ..exact import as_floats
from ..wording import shortened

MOST_ALPHA = 0.5
"""The largest level of an audit: with a larger one, more than every second true claim may be refuted."""


def scores_or_rows(name: str, values: Any) -> FloatArray:
    """Return the scores as float64: (n,), also where they are given as one column (n, 1), or rows (n, d).

    Raises ValueError for anything else than real numbers, and for masked ones.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} must hold no masked values: leave them out")
    try:
        given = detached(values)
        # NumPy would drop the imaginary parts, and would turn dates into whole numbers.
        kind = given.dtype.kind if isinstance(given, np.ndarray) else np.asarray(given).dtype.kind
        array = as_floats(name, given) if kind not in "cmM" else None
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{name} cannot become an array of numbers: {error}") from None
    except ValueError as error:
        if name in str(error):
            raise
        raise ValueError(f"{name} must be an array of numbers, got {shortened(values)}") from None
    if array is None:
        raise ValueError(f"{name} must be real numbers, got {np.asarray(given).dtype}")
    return column(array)


def column(array: NDArray[Any]) -> NDArray[Any]:
    """Return one column (n, 1) as (n,), and any other array as it is."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def direction(higher_is_member: Any) -> bool | None:
    """Return the stated direction. Raises ValueError unless it is True, False or None."""
    if higher_is_member is None or isinstance(higher_is_member, bool | np.bool_):
        return None if higher_is_member is None else bool(higher_is_member)
    raise ValueError(f"higher_is_member must be True, False or None, got {higher_is_member!r}")


def check_whole(name: str, value: Any, *, least: int, most: int | None = None) -> None:
    """Raise ValueError unless ``value`` is a whole number from ``least`` to ``most``."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if number < least or (most is not None and number > most):
        bound = f">= {least}" if most is None else f"from {least} to {most:,}"
        raise ValueError(f"{name} must be {bound}, got {number}")


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless alpha lies in (0, 0.5]."""
    check_number("alpha", alpha)
    if not 0 < alpha <= MOST_ALPHA:
        raise ValueError(f"alpha (probability of a false refutation) must lie in (0, {MOST_ALPHA}], got {alpha}")


def detached(values: Any) -> Any:
    """Return tensors, also those that require gradients, and lists of them as arrays; other values as they are."""
    # A tensor that requires gradients or lies on an accelerator cannot become an array of itself.
    if isinstance(values, list | tuple):
        return [detached(value) for value in values] if any(hasattr(one, "detach") for one in values) else values
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        # NumPy has no 16-bit brain floats; whole numbers are left as they are, because a float may not hold them.
        values = values.double() if values.is_floating_point() else values
    return np.asarray(values) if hasattr(values, "__array__") else values
