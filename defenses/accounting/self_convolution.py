"""The distribution of the sum of many independent losses that follow the same distribution on a grid."""

import math

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from ...audit.arrays import FloatArray

_ORDERS = 20
"""Orders of the moments on each side of zero from which the window is bounded, in units of 1 / length."""


def self_convolved(masses: FloatArray, times: int, cut_off: float) -> tuple[int, FloatArray]:
    """Return the place of the first sum in a window of the grid, and the masses of the sums ``(k,)`` from there on.

    The window leaves out at most ``cut_off`` of the mass, which the transform adds to masses inside; rounding may make
    small masses negative, by about 1e-16.

    Args:
        masses: masses ``(n,)`` of the places 0 to n - 1.
        times: number of losses that are added up, at least 1.
        cut_off: mass, above 0, that the window may leave out.
    """
    first, last = _window(masses, times, cut_off)
    length = last - first + 1
    period = next_fast_len(max(length, len(masses)), real=True)
    sums = irfft(rfft(masses, period) ** times, period)
    return first, np.asarray(np.roll(sums, -first)[:length], dtype=np.float64)


def _window(masses: FloatArray, times: int, cut_off: float) -> tuple[int, int]:
    """The first and the last place of the sum outside of which there is at most ``cut_off``, by Chernoff's bound."""
    count = len(masses)
    first, last, beyond = 0, (count - 1) * times, math.log(2 / cut_off)
    up = np.exp(np.arange(count) / count)
    down = 1 / up
    rising, falling = masses.copy(), masses.copy()
    for order in range(1, _ORDERS + 1):
        rising *= up
        falling *= down
        high, low = float(rising.sum()), float(falling.sum())
        if high > 0:
            last = min(last, math.ceil((times * math.log(high) + beyond) * count / order))
        if low > 0:
            first = max(first, math.floor(-(times * math.log(low) + beyond) * count / order))
    return first, last
