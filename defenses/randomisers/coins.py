"""Draw Bernoulli variables by integer arithmetic, so that their probabilities have no floating-point error.

``exp(-gamma)`` after Canonne, Kamath, Steinke 2020, Algorithm 1, for many coins at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...audit.arrays import BoolArray, FloatArray

Propose = Callable[[NDArray[np.intp]], tuple[NDArray[Any], ArrayLike]]
"""Row numbers (m,) -> one proposal for each, and the exponents with which ``exp_coin`` accepts them."""
_FINEST = 2.0**53


def coin(share: ArrayLike, size: int, rng: np.random.Generator) -> BoolArray:
    """Draw ``size`` booleans that are true with probability ``share`` in [0, 1], rounded down to a multiple of 2^-53;
    ``share`` is one number, or one per boolean.
    """
    # The generator's numbers are j / 2^53 with j uniform, so this compares integers.
    return np.asarray(rng.random(size) < np.floor(np.asarray(share, dtype=np.float64) * _FINEST) / _FINEST)


def exp_coin(exponent: ArrayLike, size: int, rng: np.random.Generator) -> BoolArray:
    """Draw ``size`` booleans that are true with probability exp(-``exponent``), without computing an exponential;
    ``exponent`` >= 0 is one number, or one per boolean.

    The exponent's fraction is rounded down to k / 2^53, so that a false report is never rarer than claimed.
    """
    gamma = np.broadcast_to(np.asarray(exponent, dtype=np.float64), (size,))
    whole = np.floor(gamma)
    heads = _small_exp_coin(gamma - whole, rng)
    left = whole.astype(np.int64)
    # exp(-3.5) = exp(-.5) exp(-1)^3: one more coin for every whole unit, until the first tail.
    # Only coins that are still heads and have whole units left are flipped again.
    flipped = np.flatnonzero(heads & (left > 0))
    while flipped.size:
        heads[flipped] = _small_exp_coin(np.ones(flipped.size), rng)
        left[flipped] -= 1
        flipped = flipped[heads[flipped] & (left[flipped] > 0)]
    return heads


def rejection(count: int, propose: Propose, rng: np.random.Generator) -> NDArray[Any]:
    """Draw ``count`` values by rejection sampling, where a value's probability is proportional to its proposal
    probability times exp(-exponent).
    """
    proposals, exponents = propose(np.arange(count))
    drawn = np.array(proposals)
    left = np.flatnonzero(~exp_coin(exponents, count, rng))
    while left.size:
        proposals, exponents = propose(left)
        kept = exp_coin(exponents, left.size, rng)
        # Rejected rows are drawn again with fresh proposals, so that accepted ones keep their law.
        drawn[left[kept]] = proposals[kept]
        left = left[~kept]
    return drawn


def _small_exp_coin(gamma: FloatArray, rng: np.random.Generator) -> BoolArray:
    """Exponents in [0, 1]: for K = 1, 2, ... until a coin of gamma / K fails; heads where the last K is odd."""
    passed = np.zeros(gamma.size, dtype=np.int64)
    flipped, divisor = np.flatnonzero(gamma), 1
    while flipped.size:
        won = coin(gamma[flipped], flipped.size, rng)
        # Probability gamma / K as a product of two exact coins: gamma, and 1 / K by an integer.
        if divisor > 1:
            won &= rng.integers(divisor, size=flipped.size, dtype=np.uint16) == 0
        flipped, divisor = flipped[won], divisor + 1
        passed[flipped] += 1
    return np.asarray(passed % 2 == 0)
