"""Bits: an encoding whose bits are flipped independently, ones and zeros each with a chance of their own."""

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
    """A one is flipped with chance 1 / (1 + e^of_one), a zero with chance 1 / (1 + e^of_zero); both exponents >= 0."""

    of_one: float
    of_zero: float

    @property
    def one(self) -> float:
        """Chance that a one is reported of a one."""
        return 1 / (1 + math.exp(-self.of_one))

    @property
    def zero(self) -> float:
        """Chance that a one is reported of a zero."""
        return 1 / (1 + math.exp(self.of_zero))

    def sample(self, bits: Bits, rng: np.random.Generator) -> Bits:
        """Same shape; drawn in integers."""
        flat = bits.ravel()
        exponents = np.where(flat == 1, self.of_one, self.of_zero)

        def propose(rows: NDArray[np.intp]) -> tuple[Bits, FloatArray]:
            flip = rng.integers(2, size=rows.size, dtype=np.int8)
            return flip, np.asarray(flip * exponents[rows], dtype=np.float64)

        return np.asarray(flat ^ rejection(flat.size, propose, rng), dtype=np.int8).reshape(bits.shape)

    def log_mass(self, reports: ArrayLike, bits: Bits) -> FloatArray:
        """``reports``: (..., m) of ``bits`` (m,) -> (...,)."""
        seen = np.asarray(reports)
        ones = np.where(bits == 1, self.one, self.zero)
        return np.asarray(np.where(seen == 1, np.log(ones), np.log1p(-ones)).sum(axis=-1))

    def estimate(self, reports: ArrayLike) -> FloatArray:
        """Unbiased of each bit, same shape."""
        return np.asarray((np.asarray(reports) - self.zero) / (self.one - self.zero))

    def variance(self, bits: ArrayLike) -> FloatArray:
        chance = np.where(np.asarray(bits) == 1, self.one, self.zero)
        return np.asarray(chance * (1 - chance) / (self.one - self.zero) ** 2)


def all_bits(length: int) -> WeightedReports:
    """Every row of ``length`` bits. ValueError past 20."""
    check_listable(2**length)
    return finite(np.array(list(itertools.product((0, 1), repeat=length)), dtype=np.int8))
