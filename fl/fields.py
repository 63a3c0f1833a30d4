"""Fields: checks that configured numbers share."""

import math
from numbers import Real


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0, got {value!r}")


def check_count(name: str, value: object, *, least: int = 1, told: str = "") -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``; ``told``: what else it may be."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}{told}, got {value!r}")
