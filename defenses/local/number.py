"""Randomise a clipped number so that the report that a client sends is itself the server's estimate of the number."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from ...audit.arrays import FloatArray
from ..randomisers.randomiser import Randomiser

# Relative distance within which a number that was sent as float32 is matched with its double.
_ROUNDING = 1e-6


class NumberReport(Protocol):
    """A distribution of the report of one number in [-1, 1]; the caller multiplies reports by the clipping radius."""

    @property
    def atoms(self) -> FloatArray:
        """Return all reports that have positive probability, ascending; empty if reports are continuous."""
        ...

    @property
    def reach(self) -> float:
        """Return the largest possible absolute value of a report."""
        ...

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw one randomised report for each value; return an array of the same shape."""
        ...

    def log_density(self, reports: FloatArray, values: FloatArray) -> FloatArray:
        """Compute the log density of each report given its value: arrays of shape (n,); -inf if the report is
        impossible.
        """
        ...

    def worst_pair(self) -> tuple[float, float]:
        """Return the two values, without and with the canary, that reports distinguish best."""
        ...


@dataclass(frozen=True, kw_only=True)
class Numeric:
    """A report of one number by a randomiser whose output is itself the server's estimate of the number.

    Args:
        randomiser: of radius 1, with a density that is elementwise in reports and values.
        atomic: the part of it that reports one of finitely many numbers; None where every report has a density.
        reach: the largest report of the part that has a density.
    """

    randomiser: Randomiser
    atomic: Randomiser | None = None
    reach: float = math.inf

    @cached_property
    def atoms(self) -> FloatArray:
        return np.zeros(0) if self.atomic is None else np.sort(self.atomic.outputs().reports)

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.asarray(self.randomiser.sample(values, rng), dtype=np.float64)

    def log_density(self, reports: FloatArray, values: FloatArray) -> FloatArray:
        return self.randomiser.log_density(reports, values)

    def worst_pair(self) -> tuple[float, float]:
        absent, present = self.randomiser.worst_pair()
        return float(absent), float(present)


def unrounded(number: NumberReport, sent: ArrayLike, scales: ArrayLike) -> FloatArray:
    """Recover the exact reports from the float32 numbers ``sent``, each of which is a report times its scale.

    A report is an atom where the atom's float32 number is what was sent. The report of a density is returned as it is,
    up to its reach, beyond which it may have been rounded.
    """
    crossed, scale = np.asarray(sent, dtype=np.float32), np.asarray(scales, dtype=np.float64)
    reports = crossed.astype(np.float64) / scale
    # Reports clearly beyond the reach are impossible and must keep a density of 0.
    within = np.abs(reports) <= number.reach * (1 + _ROUNDING)
    reports = np.where(within, np.clip(reports, -number.reach, number.reach), reports)
    if not number.atoms.size:
        return np.asarray(reports)
    above = np.clip(np.searchsorted(number.atoms, reports), 1, max(1, number.atoms.size - 1))
    # Rounding may move a report to the other side of an atom, so both neighbours are compared.
    for near in (number.atoms[above - 1], number.atoms[np.minimum(above, number.atoms.size - 1)]):
        reports = np.where(crossed == sendable(near * scale), near, reports)
    return np.asarray(reports)


def sendable(numbers: ArrayLike) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Convert numbers to float32 and replace a zero by the smallest normal number, 1.2e-38, because zero means that
    nothing was sent.
    """
    rounded = np.asarray(numbers, dtype=np.float32)
    return np.where(rounded == 0, np.finfo(np.float32).tiny, rounded)
