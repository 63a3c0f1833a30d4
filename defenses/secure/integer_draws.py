"""Draw the integer noise of secure sums, the discrete Gaussian exactly: almost always one random word per number.

Draw the discrete Gaussian exactly, from a table of integers: almost always one random word per number.

The law is P(x) proportional to e(x) = exp(-x^2 / (2 variance)), for every integer x. A whole number ``scale`` gives x
the mass scale * e(x), which is no rational number. It is divided into a whole number of units, floor(scale * e(x)), and
a rest below 1. A uniform word of 64 bits falls into one of 2^64 units:

- one of the units of an x, which is then the result (alias method: Walker 1977, Vose 1991);
- or one of the other units. Each x that the table holds has one of them for its rest, and the integers beyond the table
  have some. Such a unit is accepted with a probability that makes up exactly the missing mass (rejection sampling);
  where it is not accepted, and where a unit belongs to no x, a new word is drawn.

Each x is thus drawn with a probability proportional to scale * e(x), and the normalising sum is not needed. All
decisions compare integers: a probability that is no rational number is compared with a uniform number digit by digit,
until they differ. Draws have the law if the generator's bits are fair; one word in about a million is another unit.

Draw discrete Gaussian, Skellam, centred binomial and rounded Gaussian noise as integers.

How exact they are: the discrete Gaussian (``gaussian_table``), the discrete Laplace (Canonne, Kamath, Steinke 2020,
Algorithms 1 and 2) and the centred binomial of at most 4096 coins use comparisons and counts of integers alone; they
have their law if the generator's bits are fair, and numpy draws bounded integers without bias (Lemire 2019). More coins
use numpy's binomial, and the Skellam law uses numpy's Poisson, which reject in float64 (Kachitvichyanukul and Schmeiser
1988; Hörmann 1993); the rounded Gaussian uses numpy's ziggurat. These laws are right to about the fifteenth digit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...audit.arrays import BoolArray, FloatArray, IntArray

_GUARD = 64
"""Bits of precision beyond those of a result, at first."""
_UNUSED = 2.0**-20
"""Share of units that belong to no x, so that a scale that is computed in floating point is never too large."""
_BLOCK = 1 << 15


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianTable:
    """A table for drawing discrete Gaussian integers: the probability units of the integers -reach to reach,
    distributed to columns of equal size; build it by ``gaussian_table``.

    Args:
        bits: length of a word.
        scale: the mass of 0, in units.
        reach: the largest integer whose mass is at least one unit.
        left: units that are no whole unit of an integer of the table.
        limits: ``(columns,)``, units of a column that belong to its own integer, ``column - reach``. Own number
            reach + 1 stands for the units that are left.
        others: ``(columns,)``, the integer to which the column's other units belong.
    """

    variance: int
    bits: int
    scale: int
    reach: int
    left: int
    limits: NDArray[np.uint64]
    others: NDArray[np.int32]

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Draw ``n`` independent integers, shape ``(n,)``."""
        drawn = np.empty(n, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            block = drawn[start : start + _BLOCK]
            self._look_up(block, rng)
            for place in (block > self.reach).nonzero()[0]:
                block[place] = self._left_over(rng)
        return drawn

    def _look_up(self, out: IntArray, rng: np.random.Generator) -> None:
        """Fill an array with integers of the table, or reach + 1 where a word falls into the units that are left."""
        inside = self.bits - (len(self.limits).bit_length() - 1)
        words = rng.integers(0, 1 << self.bits, len(out), dtype=np.uint64)
        column = (words >> np.uint64(inside)).view(np.int64)
        words &= np.uint64((1 << inside) - 1)
        np.subtract(column, self.reach, out=out)
        np.copyto(out, self.others[column], where=words >= self.limits[column])

    def _left_over(self, rng: np.random.Generator) -> int:
        """An integer for a word that fell into the units that are left."""
        again = np.empty(1, dtype=np.int64)
        while (found := self._accepted(rng)) is None:
            self._look_up(again, rng)
            if (found := int(again[0])) <= self.reach:
                break
        return found

    def _accepted(self, rng: np.random.Generator) -> int | None:
        """The integer of a uniform unit of those that are left, if it has one and the unit is accepted."""
        unit, held, length = int(rng.integers(self.left, dtype=np.uint64)), 2 * self.reach + 1, self._length
        if unit < held:
            found, doublings = unit - self.reach, 0
        elif unit < held + 4 * length:
            # Two units for each sign and place; blocks beyond the table have the chances 1/2, 1/4, 1/8, ...
            doublings = _heads(rng)
            sign, place = 1 - 2 * (unit % 2), unit // 2 % length
            found = sign * (self.reach + 1 + doublings * length + place)
        else:
            return None

        def digits(count: int) -> int:
            return exp_floor(found**2, 2 * self.variance, self.scale << doublings + count)

        return found if is_below(digits, self.bits, rng) else None

    @property
    def _length(self) -> int:
        return block_length(self.variance)


@lru_cache(maxsize=16)
def gaussian_table(variance: int, *, bits: int = 64) -> GaussianTable:
    """Build the table for the distribution P(x) proportional to exp(-x^2 / (2 variance)).

    Args:
        variance: a whole number >= 1; the table has some 19 times its root, and twice as many columns at most.
        bits: length of a word, at most 64; shorter words use the table less often, and the law is the same.

    Raises:
        ValueError: if a word has too few bits for this variance.
    """
    # Beyond this bound the mass is below one unit, because a scale has at most as many bits as a word.
    bound = math.isqrt(2 * variance * bits) + 1
    needed = 2 * bound + 1 + 4 * block_length(variance)
    if 2 * needed > 1 << bits:
        raise ValueError(f"bits must be enough for {2 * needed} units, got {bits}")
    mass = float(np.exp(-np.square(np.arange(-bound, bound + 1.0)) / (2 * variance)).sum())
    scale = int(((1 << bits) - needed) / (mass * (1 + _UNUSED)))
    half = _whole_units(variance, scale, bits)
    weights = [*half[:0:-1], *half]
    left = (1 << bits) - sum(weights)
    if left < needed:
        raise ArithmeticError(f"{needed} units must be left, got {left}")
    limits, others = _dealt([*weights, left], bits)
    reach = len(half) - 1
    return GaussianTable(
        variance=variance, bits=bits, scale=scale, reach=reach, left=left, limits=limits, others=others - reach
    )


def block_length(variance: int) -> int:
    """Return the number of integers in a block beyond the table; from one block to the next, exp(-x^2 / (2 variance))
    falls to less than half.

    For y >= 0, (y + length)^2 - y^2 >= length^2 > 2 variance > 2 variance ln 2.
    """
    return math.isqrt(2 * variance) + 1


def is_below(digits: Callable[[int], int], bits: int, rng: np.random.Generator) -> bool:
    """Return True with probability p in [0, 1), where p is given by its binary digits.

    ``digits(n)`` returns floor(2^n m), for a number m >= 0 whose fractional part is p. They are compared with a uniform
    number, ``bits`` more digits at a time, until both differ: two steps take place with a chance of 2^-bits.
    """
    count, group = bits, 1 << bits
    while (word := int(rng.integers(group, dtype=np.uint64))) == (own := digits(count) % group):
        count += bits
    return word < own


def exp_floor(numerator: int, denominator: int, scale: int) -> int:
    """Return floor(scale * exp(-numerator / denominator)), for integers >= 0 and a denominator >= 1.

    From bounds on the exponential, which become closer until both have the same floor.
    """
    # The exponential of any other fraction is irrational, so its bounds part from every integer in the end.
    if numerator == 0 or scale == 0:
        return scale
    precision = scale.bit_length() + _GUARD
    while True:
        low, high = (scale * bound >> precision for bound in _exp_bounds(numerator, denominator, precision))
        if low == high:
            return low
        precision *= 2


def _exp_bounds(numerator: int, denominator: int, precision: int) -> tuple[int, int]:
    """Integers between which 2^precision * exp(-numerator / denominator) lies: the series of exp(z) at z < 1/2, whose
    reciprocal is squared.
    """
    halvings = (numerator // denominator).bit_length() + 1
    one, below = 1 << precision, denominator << halvings
    low = high = terms = term = one
    order = 0
    # Less than the last term, in units of the precision at most 1, follows after it.
    while term > 1:
        order += 1
        terms, term = terms * numerator // (below * order), -(-term * numerator // (below * order))
        low, high = low + terms, high + term
    low, high = (one << precision) // (high + 1), -(-(one << precision) // low)
    for _ in range(halvings):
        low, high = low * low >> precision, -(-high * high >> precision)
    return low, high


def _whole_units(variance: int, scale: int, bits: int) -> list[int]:
    """floor(scale * e(x)) for x = 0, 1, 2, ... as long as it is at least 1."""
    precision = bits + 2 * _GUARD
    # Bounds on e(x), on e(x + 1) / e(x) = q^(2x + 1), and on q^2, where q = exp(-1 / (2 variance)).
    level = [1 << precision] * 2
    ratio = list(_exp_bounds(1, 2 * variance, precision))
    square = _product(ratio, ratio, precision)
    found = list[int]()
    while True:
        low, high = (scale * bound >> precision for bound in level)
        exact = low if low == high else exp_floor(len(found) ** 2, 2 * variance, scale)
        if exact == 0:
            return found
        found.append(exact)
        level, ratio = _product(level, ratio, precision), _product(ratio, square, precision)


def _product(one: list[int], other: list[int], precision: int) -> list[int]:
    """Bounds on a product, from bounds on its factors."""
    return [one[0] * other[0] >> precision, -(-one[1] * other[1] >> precision)]


def _dealt(masses: list[int], bits: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Deal masses, which add up to 2^bits, to columns of equal size, each with units of at most two (Vose 1991): the
    limits, and the places of the others.
    """
    width = (len(masses) - 1).bit_length()
    size, rest = 1 << bits - width, [*masses, *[0] * ((1 << width) - len(masses))]
    limits, others = rest.copy(), list(range(len(rest)))
    small = [place for place, mass in enumerate(rest) if mass < size]
    large = [place for place, mass in enumerate(rest) if mass >= size]
    while small:
        place, giver = small.pop(), large[-1]
        limits[place], others[place] = rest[place], giver
        rest[giver] -= size - rest[place]
        if rest[giver] < size:
            small.append(large.pop())
    for place in large:
        limits[place] = size
    return np.array(limits, dtype=np.uint64), np.array(others, dtype=np.int32)


def _heads(rng: np.random.Generator) -> int:
    """How many times a fair coin comes up before it first fails."""
    count = 0
    while rng.integers(2):
        count += 1
    return count


LARGEST_SCALE = 4096
"""Largest standard deviation of the discrete Gaussian: its table then takes 1.5 MiB, and .1 s to build."""
_MOST_TOSSED = 4096
_BLOCK_OF_DRAWS = 1 << 16
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
    """Add Laplace noise to numbers without low bits that reveal them: round the numbers to a grid, then add a discrete
    Laplace integer times the grid's width.

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
    rows = max(1, _BLOCK_OF_DRAWS // words)
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
    for start in range(0, len(filled), _BLOCK_OF_DRAWS):
        block = filled[start : start + _BLOCK_OF_DRAWS]
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
