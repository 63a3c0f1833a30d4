"""Draw discrete Gaussian, Skellam, centred binomial and rounded Gaussian noise as integers.

How exact they are: the discrete Gaussian (``gaussian_table``), the discrete Laplace (Canonne, Kamath, Steinke 2020,
Algorithms 1 and 2) and the centred binomial of at most 4096 coins use comparisons and counts of integers alone; they
have their law if the generator's bits are fair, and numpy draws bounded integers without bias (Lemire 2019). More coins
use numpy's binomial, and the Skellam law uses numpy's Poisson, which reject in float64 (Kachitvichyanukul and Schmeiser
1988; Hörmann 1993); the rounded Gaussian uses numpy's ziggurat. These laws are right to about the fifteenth digit.
"""

import math
from collections.abc import Callable

import numpy as np

from ...audit.arrays import BoolArray, FloatArray, IntArray
from .gaussian_table import gaussian_table

LARGEST_SCALE = 4096
"""Largest standard deviation of the discrete Gaussian: its table then takes 1.5 MiB, and .1 s to build."""
_MOST_TOSSED = 4096
_BLOCK = 1 << 16
_COINS = np.array([bin(word).count("1") for word in range(1 << 16)], dtype=np.uint8)


def discrete_gaussian(variance: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Draw integers x with probability proportional to exp(-x^2 / (2 variance)), exactly (``gaussian_table``).

    Args:
        variance: a whole number in 1..4096^2. The standard deviation of x is at most its root, and equal to it to
            within exp(-2 pi^2 variance).

    Raises:
        ValueError: for any other variance.
    """
    if not (isinstance(variance, int) and 1 <= variance <= LARGEST_SCALE**2):
        raise ValueError(f"variance must be a whole number in 1..{LARGEST_SCALE**2}, got {variance!r}")
    return gaussian_table(variance).draw(math.prod(shape), rng).reshape(shape)


def discrete_laplace(scale: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Draw integers x with probability proportional to exp(-|x| / scale) (Canonne et al. 2020, Algorithm 2).

    Raises:
        ValueError: unless ``scale`` is a whole number >= 1.
    """
    if not (isinstance(scale, int) and scale >= 1):
        raise ValueError(f"scale must be a whole number >= 1, got {scale!r}")

    def candidates(n: int) -> tuple[IntArray, BoolArray]:
        rest = rng.integers(0, scale, n)
        kept = _bernoulli_exp(rest, np.full(n, scale, dtype=np.int64), rng)
        size = rest + scale * _failures(n, rng)
        negative = rng.integers(0, 2, n) == 1
        # Minus zero would count zero twice.
        return np.where(negative, -size, size), kept & ~(negative & (size == 0))

    return _filled(shape, candidates)


def laplace_on_grid(
    values: FloatArray, rng: np.random.Generator, *, epsilon: float, sensitivity: float, grid: float
) -> FloatArray:
    """Add Laplace noise to numbers without the low bits that reveal them: round to a grid, then add a discrete Laplace
    integer times its width.

    Each number is (epsilon, 0)-DP by itself, for values that differ by at most ``sensitivity``; as the noise is a whole
    number of steps, each result is an exact multiple of ``grid`` whatever the value (see ``discrete_laplace``).

    Args:
        values: finite, at most 2^40 steps in size.
        grid: a power of two, such as 2^-10, because its multiples are exact in floating point.

    Raises:
        ValueError: for other values, levels or grids.
    """
    if not (math.isfinite(epsilon) and epsilon > 0 and math.isfinite(sensitivity) and sensitivity > 0):
        raise ValueError(f"epsilon and sensitivity must be > 0 and finite, got {epsilon!r} and {sensitivity!r}")
    if not (math.isfinite(grid) and grid > 0 and math.frexp(grid)[0] == 0.5):
        raise ValueError(f"grid must be a power of two, got {grid!r}")
    steps = np.rint(np.asarray(values, dtype=np.float64) / grid)
    if not np.all(np.abs(steps) <= 2.0**40):
        raise ValueError("values must be finite and at most 2^40 steps of the grid in size")
    # Rounding may move two values apart by one step more.
    scale = math.ceil((math.floor(sensitivity / grid) + 1) / epsilon)
    noise = discrete_laplace(scale, steps.shape, rng)
    return np.asarray((steps + noise) * grid, dtype=np.float64)


def skellam(variance: float, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Draw differences of two Poisson numbers of mean variance / 2 (Skellam 1946); a sum of such draws is Skellam too.

    Raises:
        ValueError: unless ``variance`` is a finite number above zero.
    """
    if not 0 < variance < math.inf:
        raise ValueError(f"variance must be a number > 0, got {variance!r}")
    return rng.poisson(variance / 2, shape) - rng.poisson(variance / 2, shape)


def centred_binomial(coins: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Draw the number of heads of ``coins`` fair coins minus its mean, with variance coins / 4; a sum of such draws has
    the same form.

    Up to 4096 coins are tossed one by one; for more it uses numpy's binomial.

    Raises:
        ValueError: unless ``coins`` is a positive even number: half of an odd number is no integer.
    """
    if not (isinstance(coins, int) and coins >= 2 and coins % 2 == 0):
        raise ValueError(f"coins, the number of coin tosses, must be a positive even number, got {coins!r}")
    if coins > _MOST_TOSSED:
        return rng.binomial(coins, 0.5, shape) - coins // 2
    total = math.prod(shape)
    heads = np.zeros(total, dtype=np.int64)
    words = -(-coins // 16)
    rows = max(1, _BLOCK // words)
    for start in range(0, total, rows):
        tossed = rng.integers(0, 1 << 16, (min(rows, total - start), words), dtype=np.uint16)
        # Each word holds sixteen coins; the shift drops the surplus ones of the last word.
        tossed[:, -1] >>= 16 * words - coins
        heads[start : start + rows] = _COINS[tossed].sum(1, dtype=np.int64)
    return heads.reshape(shape) - coins // 2


def rounded_gaussian(std: float, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
    """Draw Gaussian numbers in float64, by numpy's ziggurat algorithm, and round them to integers."""
    return np.rint(std * rng.standard_normal(shape)).astype(np.int64)


def _filled(shape: tuple[int, ...], candidates: Callable[[int], tuple[IntArray, BoolArray]]) -> IntArray:
    """Draws candidates again in every place where one was rejected, one block of the shape at a time."""
    filled = np.zeros(math.prod(shape), dtype=np.int64)
    for start in range(0, len(filled), _BLOCK):
        block = filled[start : start + _BLOCK]
        missing = np.arange(len(block))
        while len(missing):
            drawn, accepted = candidates(len(missing))
            block[missing[accepted]] = drawn[accepted]
            missing = missing[~accepted]
    return filled.reshape(shape)


def _failures(n: int, rng: np.random.Generator) -> IntArray:
    """How many times a coin of probability exp(-1) comes up before it first fails, ``(n,)``."""
    counts = np.zeros(n, dtype=np.int64)
    alive = np.arange(n)
    while len(alive):
        alive = alive[_bernoulli_fraction(np.ones(len(alive), np.int64), np.ones(len(alive), np.int64), rng)]
        counts[alive] += 1
    return counts


def _bernoulli_exp(numerator: IntArray, denominator: IntArray, rng: np.random.Generator) -> BoolArray:
    """True with probability exp(-numerator / denominator) (Canonne et al. 2020, Algorithm 1)."""
    whole, rest = np.divmod(numerator, denominator)
    result = np.zeros(len(whole), dtype=bool)
    enough = _failures(len(whole), rng) >= whole
    result[enough] = _bernoulli_fraction(rest[enough], denominator[enough], rng)
    return result


def _bernoulli_fraction(numerator: IntArray, denominator: IntArray, rng: np.random.Generator) -> BoolArray:
    """True with probability exp(-numerator / denominator) for a fraction in [0, 1]: von Neumann's alternating
    series.
    """
    result = np.zeros(len(numerator), dtype=bool)
    alive, turn = np.arange(len(numerator)), 1
    while len(alive):
        # Two comparisons instead of one, P(u < numerator / (denominator turn)): the product would exceed 64 bits.
        hit = rng.integers(0, denominator[alive]) < numerator[alive]
        hit &= rng.integers(0, turn, len(alive)) == 0
        result[alive[~hit]] = turn % 2 == 1
        alive, turn = alive[hit], turn + 1
    return result
