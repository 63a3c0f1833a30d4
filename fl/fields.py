"""Checks the numbers with which algorithms, models, attacks and defenses are configured."""

import math
from numbers import Real


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a finite number above zero."""
    # bool is a Real number to Python, and `clip_norm = true` is a mistake.
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0, got {value!r}")


def check_count(name: str, value: object, *, least: int = 1, alternative: str = "") -> None:
    """Raise ValueError unless ``value`` is an integer >= ``least``.

    ``alternative``: other accepted values, for the message.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}{alternative}, got {value!r}")
