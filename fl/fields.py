"""Fields: checks that configured numbers share."""

import math
from numbers import Real


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0, got {value!r}")


def check_count(name: str, value: int) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
