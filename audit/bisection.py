"""Finds the number up to which a condition holds, by doubling and bisection."""

from bisect import bisect_left
from collections.abc import Callable


def crossing(
    holds: Callable[[float], bool],
    low: float = 0.0,
    high: float | None = None,
    *,
    relative: float = 1e-9,
    absolute: float = 0.0,
) -> tuple[float, float]:
    """Return two close numbers between which the condition ``holds`` becomes false: ``holds`` is true at the first
    number and false at the second. Both numbers are ``low`` if ``holds`` is false at ``low``.

    ``holds`` must hold up to some number and nowhere beyond. ``high``: a number at which it does not hold, None to
    double 1 until it does not. The two are apart by at most the larger of ``absolute`` and ``relative`` times the
    second; with both 0 they are neighbouring doubles.
    """
    if not holds(low):
        return low, low
    if high is None:
        high = 1.0
        while holds(high):
            low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if high - low <= max(absolute, relative * high) or not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def fewest(enough: Callable[[int], bool], limit: int) -> int | None:
    """Return the smallest whole number from 1 to ``limit`` for which ``enough`` is true; None if there is none.
    ``enough`` must then be true for every larger number too.
    """
    high = 1
    while not enough(high):
        if high >= limit:
            return None
        high = min(2 * high, limit)
    low = high // 2 + 1
    return low + bisect_left(range(low, high), True, key=enough)
