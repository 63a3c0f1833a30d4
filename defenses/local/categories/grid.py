"""Report a number as a category: round it to a public grid without bias, randomise the grid level, and decode the
report.

Define the base class of local DP defenses that report sampled coordinates as levels of a public grid.
"""

from abc import ABC
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....audit.arrays import FloatArray
from ....audit.claim import Value
from ....fl.plan import Plan
from ...randomisers.randomiser import FiniteDomain, Randomiser, check_given_count
from ..defense import SampledDefense

MOST_LEVELS = 12
# Decoded numbers closer than this share of the largest one count as equal, because float32 must distinguish atoms.
_SAME = 1e-5


@dataclass(frozen=True, kw_only=True)
class Gridded:
    """A randomised report of a number in [-1, 1], which is first rounded to one of ``levels`` grid points.

    The number is rounded to one of its two neighbours on an even grid, without bias. The client decodes the category's
    report before it sends it. The decoder is linear in the randomiser's own estimate and unbiased for the grid, and so
    for the number. It is post-processing; the law is that of what is sent, where reports that decode to one number are
    one.

    Args:
        randomiser: its values are 0..levels-1, unless ``values`` differs; its reports can be listed.
    """

    randomiser: Randomiser
    levels: int

    def __post_init__(self) -> None:
        check_levels(self.levels)

    @property
    def grid(self) -> FloatArray:
        """Return the number in [-1, 1] that each grid level represents, in ascending order."""
        return np.linspace(-1, 1, self.levels)

    def values(self) -> NDArray[Any]:
        """Return the randomiser's input for each grid level, array of shape (levels, ...)."""
        return np.arange(self.levels)

    @cached_property
    def atoms(self) -> FloatArray:
        # Rounding errors make nearly equal decoded numbers; merging them keeps one atom for each.
        decoded = np.unique(self._decoded(self._reports))
        return np.asarray(decoded[np.diff(decoded, prepend=-np.inf) > _SAME * np.abs(decoded).max()])

    @property
    def largest(self) -> float:
        return float(np.abs(self.atoms).max())

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        low, share = self._neighbours(values)
        # Random rounding is unbiased; rounding to the nearest level would not be.
        levels = low + (rng.random(share.shape) < share)
        decoded = self._decoded(self.randomiser.sample(self.values()[levels], rng))
        return np.asarray(self.atoms[self._nearest(decoded)])

    def log_density(self, reports: FloatArray, values: FloatArray) -> FloatArray:
        low, share = self._neighbours(values)
        near = self._nearest(reports)
        masses = (1 - share) * self.masses[low, near] + share * self.masses[low + 1, near]
        return np.where(np.isclose(self.atoms[near], reports, rtol=1e-9, atol=0), np.log(masses), -np.inf)

    def worst_pair(self) -> tuple[float, float]:
        logs = np.log(self.masses)
        ratios = (logs[np.newaxis] - logs[:, np.newaxis]).max(axis=-1)
        # Several pairs may have the largest ratio; the one whose laws overlap least is the easiest to audit.
        apart = np.abs(self.masses[np.newaxis] - self.masses[:, np.newaxis]).sum(axis=-1)
        worst = np.where(ratios >= ratios.max() - 1e-9, apart, -1.0)
        absent, present = np.unravel_index(int(worst.argmax()), worst.shape)
        return float(self.grid[absent]), float(self.grid[present])

    @cached_property
    def masses(self) -> FloatArray:
        """Return the probability of each possible report for each grid level, array of shape (levels, number of
        possible reports).
        """
        listed = np.array([np.exp(self.randomiser.log_density(self._reports, value)) for value in self.values()])
        # Several reports may decode to one number, so their masses are added.
        places = self._nearest(self._decoded(self._reports))
        return np.array([np.bincount(places, row, len(self.atoms)) for row in listed])

    @cached_property
    def _reports(self) -> NDArray[Any]:
        return self.randomiser.outputs().reports

    @cached_property
    def _weights(self) -> FloatArray:
        """The shortest decoder: estimate @ weights is unbiased for the grid."""
        means = np.array([self.randomiser.expectation(value) for value in self.values()])
        weights = np.linalg.lstsq(means, self.grid, rcond=None)[0]
        if not np.allclose(means @ weights, self.grid, atol=1e-8):
            raise ValueError(
                f"the randomiser's reports must distinguish all levels, got {self.levels} levels that no linear "
                "decoder of the reports estimates without bias"
            )
        return np.asarray(weights)

    def _decoded(self, reports: ArrayLike) -> FloatArray:
        return np.asarray(self.randomiser.estimate(reports) @ self._weights)

    def _nearest(self, numbers: FloatArray) -> NDArray[np.intp]:
        """Index of the atom nearest to each number."""
        middles = (self.atoms[1:] + self.atoms[:-1]) / 2
        return np.searchsorted(middles, numbers)

    def _neighbours(self, values: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """The level below each value and the probability of the one above."""
        places = (np.asarray(values) + 1) / 2 * (self.levels - 1)
        low = np.clip(np.floor(places), 0, self.levels - 2).astype(np.intp)
        return low, np.asarray(places - low)


def check_levels(levels: int, *, least: int = 2) -> None:
    """Raise ValueError unless the number of grid levels is between ``least`` and 12; with more levels, a report of bits
    would have too many possible values to enumerate.
    """
    check_given_count("levels", levels, least=least, most=MOST_LEVELS)


@dataclass(frozen=True, kw_only=True)
class GriddedDefense(SampledDefense, ABC):
    """A base class of local DP defenses that round each sent coordinate without bias to one of ``levels`` evenly spaced
    numbers from -radius to radius.

    The step is randomised as a category and decoded, without bias, by the client.

    Args:
        levels: of the grid, 2 to 12.
    """

    of_levels: ClassVar[type[FiniteDomain]]
    levels: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_levels(self.levels)

    def published(self, plan: Plan) -> dict[str, Value]:
        return super().published(plan) | {"levels": self.levels}

    def number(self, epsilon: float) -> Gridded:
        return Gridded(randomiser=self.of_levels(epsilon=epsilon, domain=self.levels), levels=self.levels)
