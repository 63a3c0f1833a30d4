"""Flip each bit of an encoded value independently, with one probability for ones and another for zeros."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...audit.arrays import FloatArray
from .coins import rejection
from .outputs import WeightedReports, check_listable, finite

Bits = NDArray[np.int8]


@dataclass(frozen=True, kw_only=True)
class Flips:
    """A randomiser of bits that flips a one with probability 1 / (1 + e^of_one) and a zero with probability 1 / (1 +
    e^of_zero); the fields ``of_one`` and ``of_zero`` are >= 0.
    """

    of_one: float
    of_zero: float

    @property
    def one(self) -> float:
        """Return the probability that a bit 1 is reported as 1."""
        return 1 / (1 + math.exp(-self.of_one))

    @property
    def zero(self) -> float:
        """Return the probability that a bit 0 is reported as 1."""
        return 1 / (1 + math.exp(self.of_zero))

    def sample(self, bits: Bits, rng: np.random.Generator) -> Bits:
        """Flip ``bits`` at random and return an array of the same shape; integer arithmetic makes the probabilities
        exact.
        """
        flat = bits.ravel()
        # The probability of a flip is 1 / (1 + e^x), which a fair coin and rejection give exactly.
        exponents = np.where(flat == 1, self.of_one, self.of_zero)

        def propose(rows: NDArray[np.intp]) -> tuple[Bits, FloatArray]:
            # A flip is proposed by a fair coin and kept with probability e^-exponent; no flip is always kept.
            flip = rng.integers(2, size=rows.size, dtype=np.int8)
            return flip, np.asarray(flip * exponents[rows], dtype=np.float64)

        return np.asarray(flat ^ rejection(flat.size, propose, rng), dtype=np.int8).reshape(bits.shape)

    def log_mass(self, reports: ArrayLike, bits: Bits) -> FloatArray:
        """Return the log probability of each of ``reports``, shape (..., m), given ``bits`` of shape (m,); the result
        has the shape (...,).
        """
        seen = np.asarray(reports)
        ones = np.where(bits == 1, self.one, self.zero)
        # log1p keeps the digits of probabilities close to 1.
        return np.asarray(np.where(seen == 1, np.log(ones), np.log1p(-ones)).sum(axis=-1))

    def estimate(self, reports: ArrayLike) -> FloatArray:
        """Return an unbiased estimate of each bit from its report, an array of the same shape."""
        return np.asarray((np.asarray(reports) - self.zero) / (self.one - self.zero))

    def variance(self, bits: ArrayLike) -> FloatArray:
        return bit_variance(bits, self.one, self.zero)


def bit_variance(bits: ArrayLike, one: float, zero: float) -> FloatArray:
    """Return the variance of each bit's unbiased estimate ``(report - zero) / (one - zero)``, where ``one`` and
    ``zero`` are the probabilities that a bit 1 and a bit 0 are reported as 1.
    """
    chance = np.where(np.asarray(bits) == 1, one, zero)
    return np.asarray(chance * (1 - chance) / (one - zero) ** 2)


def all_bits(length: int) -> WeightedReports:
    """Return all sequences of ``length`` bits, one per row of an array; raise ValueError for more than 20 bits."""
    check_listable(2**length)
    return finite(np.array(list(itertools.product((0, 1), repeat=length)), dtype=np.int8))
