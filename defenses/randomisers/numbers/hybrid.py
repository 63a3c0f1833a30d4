"""Randomise a number by the Piecewise or Duchi's mechanism, chosen by a coin toss (Wang et al. 2019)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..randomiser import BoundedNumber, WeightedReports
from .duchi import Duchi
from .piecewise import Piecewise

_ROOTS = (6353 - 405 * math.sqrt(241)) ** (1 / 3) + (6353 + 405 * math.sqrt(241)) ** (1 / 3)
SWITCH = math.log((-5 + 2 * _ROOTS) / 27)
"""About .61: below it Duchi alone is better."""


class Hybrid(BoundedNumber):
    """An unbiased randomiser that applies the Piecewise mechanism with probability 1 - e^(-epsilon / 2), otherwise
    Duchi's; at an epsilon below ``SWITCH`` (about .61) it always applies Duchi's.

    The law has a density on Piecewise's range and two atoms at Duchi's bounds. A report shows from which of the two it
    came, so the ratio e^epsilon is attained on the union of both optimal events.
    """

    source = "Wang et al. 2019, HM"

    @property
    def piecewise(self) -> Piecewise:
        return Piecewise(epsilon=self.epsilon, radius=self.radius)

    @property
    def duchi(self) -> Duchi:
        return Duchi(epsilon=self.epsilon, radius=self.radius)

    @property
    def atoms(self) -> FloatArray:
        return self.duchi.atoms

    @property
    def largest(self) -> float:
        return self.piecewise.bound

    @property
    def share(self) -> float:
        """Return the probability of applying the Piecewise mechanism rather than Duchi's."""
        return -math.expm1(-self.epsilon / 2) if self.epsilon > SWITCH else 0.0

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        # Both parts are always drawn, so that the coin does not shift later draws.
        both = self.piecewise.sample(values, rng), self.duchi.sample(values, rng)
        return np.where(rng.random(both[0].shape) < self.share, *both)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        atom = self.duchi.log_density(reports, value)
        spread = self.piecewise.log_density(reports, value)
        spread = spread + math.log(self.share) if self.share else np.full_like(spread, -np.inf)
        # A report at an atom comes from Duchi almost surely; Piecewise hits it with probability 0.
        return np.where(np.isfinite(atom), atom + math.log1p(-self.share), spread)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        atoms = self.duchi.outputs()
        if not self.share:
            return atoms
        spread = self.piecewise.outputs(*values, cuts=cuts)
        reports = np.concatenate([spread.reports, atoms.reports])
        return WeightedReports(reports, np.concatenate([spread.weights, atoms.weights]))
