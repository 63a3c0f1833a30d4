"""Select coordinates by the exponential mechanism and send one random sign (EM-MDS: Jiang et al. 2022, SignDS-FL)."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....audit.arrays import BoolArray, FloatArray
from ..randomiser import Bits, Randomiser, WeightedReports, check_given_count, check_listable, finite, rejection
from .fedsel import ranks


@dataclass(frozen=True, kw_only=True)
class EMMDS(Randomiser):
    """A randomiser of a vector of shape (dimension,) whose report has entries in {-1, 0, 1}: one common sign at
    ``chosen`` coordinates and 0 elsewhere.

    The sign is a fair coin, independent of the value. Of the ``top`` coordinates that are largest in that direction, a
    set with at least ``least`` of them has e^epsilon times the probability of one with fewer. The number of such sets
    is the same for every value, so the normaliser is constant and the ratio exact. No number is reported: all of
    epsilon goes to the set. Biased as FedSel is. Drawn in integers, with up to e^epsilon proposals per report.

    Args:
        top: coordinates that count as large, 1..dimension-1.
        chosen: coordinates reported, 1..dimension-1.
    """

    dimension: int = 0
    top: int = 1
    chosen: int = 1
    source = "Jiang, Zhou, Grossklags 2022 (SignDS-FL), EM-MDS"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("dimension", self.dimension, least=2)
        for name, count in (("top", self.top), ("chosen", self.chosen)):
            check_given_count(name, count, least=1, most=self.dimension - 1)

    @property
    def _counts(self) -> list[int]:
        """Number of sets by how many of the top they contain, 0..chosen."""
        rest = self.dimension - self.top
        return [math.comb(self.top, held) * math.comb(rest, self.chosen - held) for held in range(self.chosen + 1)]

    def _weights(self, least: int) -> FloatArray:
        """Probability that a set contains 0..chosen of the top, where ``least`` are enough."""
        counts, total = self._counts, sum(self._counts)
        # Divided as whole numbers, because for a large dimension they exceed any double.
        masses = np.array([count / total for count in counts]) * np.where(
            np.arange(self.chosen + 1) >= least, 1.0, math.exp(-self.epsilon)
        )
        return np.asarray(masses / masses.sum())

    @cached_property
    def least(self) -> int:
        """Return the paper's threshold: the mechanism prefers sets with at least this many of the largest coordinates.
        Of all thresholds that some but not all sets reach, it gives the reports that contain the most of the
        largest coordinates on average.
        """
        # Thresholds that no set reaches, or every set, would leave the choice uniform.
        reached = [held for held, count in enumerate(self._counts) if count]
        return max(reached[1:], key=self._expected, default=reached[0])

    def _expected(self, least: int) -> float:
        """Mean number of the top in a set."""
        return float(self._weights(least) @ np.arange(self.chosen + 1))

    def _top(self, rows: FloatArray, sign: NDArray[np.int8]) -> BoolArray:
        return np.asarray(ranks(rows * sign[..., np.newaxis]) >= self.dimension - self.top)

    def _rows(self, values: ArrayLike) -> FloatArray:
        rows = np.asarray(values, dtype=np.float64)
        if rows.shape[-1:] != (self.dimension,) or not np.isfinite(rows).all():
            raise ValueError(f"values must be finite vectors of shape (..., {self.dimension}), got shape {rows.shape}")
        return rows

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> Bits:
        rows = self._rows(values)
        flat = rows.reshape(-1, self.dimension)
        sign = (2 * rng.integers(2, size=len(flat)) - 1).astype(np.int8)
        top = self._top(flat, sign)
        start = (np.arange(self.dimension) < self.chosen).astype(np.int8)

        def propose(at: NDArray[np.intp]) -> tuple[Bits, FloatArray]:
            sets = rng.permuted(np.tile(start, (at.size, 1)), axis=1)
            held = (sets * top[at]).sum(axis=-1)
            return sets, np.where(held >= self.least, 0.0, self.epsilon)

        return np.asarray(rejection(len(flat), propose, rng) * sign[:, np.newaxis]).reshape(rows.shape)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        seen, true = np.asarray(reports), self._rows(value)
        # The report's sign is public, so the density only needs the top of that direction.
        tops = [self._top(true, np.array(sign, dtype=np.int8)) for sign in (-1, 1)]
        top = np.where(seen.sum(axis=-1, keepdims=True) > 0, tops[1], tops[0])
        held = ((seen != 0) & top).sum(axis=-1)
        total = sum(self._counts)
        satisfied = sum(self._counts[self.least :]) / total
        log_total = math.log(2 * total) + math.log(satisfied + (1 - satisfied) * math.exp(-self.epsilon))
        return np.where(held >= self.least, 0.0, -self.epsilon) - log_total

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        check_listable(2 * math.comb(self.dimension, self.chosen))
        sets = np.array(list(itertools.combinations(range(self.dimension), self.chosen)))
        marked = (sets[..., np.newaxis] == np.arange(self.dimension)).any(axis=1).astype(np.int8)
        return finite(np.concatenate([marked, -marked]))

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        # Reversed orders have the most different tops in either direction.
        rising = np.linspace(-1, 1, self.dimension)
        return rising, -rising
