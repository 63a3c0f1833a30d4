"""Checks the numbers with which algorithms, models, attacks and defenses are configured."""

import math
from numbers import Real


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a finite number above zero."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0, got {value!r}")


def check_weight(name: str, value: float) -> None:
    """Raise ValueError unless ``value``, such as the weight of a term, is a finite number >= 0."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number >= 0, got {value!r}")


def check_share(name: str, value: float, *, ends: bool = True) -> None:
    """Raise ValueError unless ``value`` is a number in [0, 1], or in (0, 1) without the ``ends``."""
    if not _is_number(value) or not (0 <= value <= 1 if ends else 0 < value < 1):
        raise ValueError(f"{name} must be a number in {'[0, 1]' if ends else '(0, 1)'}, got {value!r}")


def _is_number(value: object) -> bool:
    # bool is a Real number to Python, and `clip_norm = true` is a mistake.
    return isinstance(value, Real) and not isinstance(value, bool)


def check_count(name: str, value: object, *, least: int = 1, alternative: str = "") -> None:
    """Raise ValueError unless ``value`` is an integer >= ``least``.

    ``alternative``: other accepted values, for the message.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}{alternative}, got {value!r}")
