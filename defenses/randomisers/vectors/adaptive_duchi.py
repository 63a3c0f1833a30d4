"""Randomise every weight by Duchi's mechanism around the centre of its layer's range (Sun et al. 2021, LDP-FL)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ....audit.claim import Unit
from ..numbers.duchi import Duchi
from ..randomiser import PairLaw, Randomiser, WeightedReports, all_bits, check_given_count, check_radius, finite


@dataclass(frozen=True, kw_only=True)
class AdaptiveDuchi(Randomiser):
    """An unbiased randomiser of a flat vector of all layers' weights. Each layer's weights have a range, centre +-
    radius, and a weight is reported as centre +- radius * (e^epsilon + 1) / (e^epsilon - 1).

    **The claim is of one coordinate**: all d are reported, each with the whole epsilon, so the vector has only d
    epsilon. The paper splits the vector, shuffles the parts and claims epsilon for it; a shuffler hides who sent which
    part, which no statement about one report can use. Its centres and radii come from the clients' own weights; here
    they are fields, public and fixed beforehand, and a weight outside its layer's range is refused.

    Args:
        centres, radii: of each layer; radii > 0.
        sizes: coordinates of each layer, >= 1.
    """

    centres: tuple[float, ...] = ()
    radii: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    source: ClassVar[str] = "Sun, Qian, Chen 2021 (LDP-FL), for one weight"
    unit: ClassVar[Unit] = Unit.COORDINATE
    closed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = {len(self.centres), len(self.radii), len(self.sizes)}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(
                "centres and radii (of the weights' ranges) and sizes (numbers of weights) must be given, each "
                f"with one entry per layer, got {len(self.centres)} centres, {len(self.radii)} radii "
                f"and {len(self.sizes)} sizes"
            )
        for radius, size in zip(self.radii, self.sizes, strict=True):
            check_radius("radii", radius)
            check_given_count("sizes", size, least=1)

    @property
    def _middle(self) -> FloatArray:
        return np.repeat(np.asarray(self.centres, dtype=np.float64), self.sizes)

    @property
    def _reach(self) -> FloatArray:
        return np.repeat(np.asarray(self.radii, dtype=np.float64), self.sizes)

    @property
    def duchi(self) -> Duchi:
        """Return Duchi's mechanism for the difference between a weight and the centre of its layer's range, divided by
        half the width of that range (the radius).
        """
        return Duchi(epsilon=self.epsilon, radius=1.0)

    def _unit(self, values: ArrayLike) -> FloatArray:
        rows = np.asarray(values, dtype=np.float64)
        if rows.shape[-1:] != self._middle.shape:
            raise ValueError(f"values must be vectors of shape (..., {len(self._middle)}), got shape {rows.shape}")
        away = (rows - self._middle) / self._reach
        # Refused and not clipped: the range is part of the public configuration.
        if not np.all(np.abs(away) <= 1 + 1e-12):
            raise ValueError(
                "each value must lie within its layer's range, centre +- radius, got a value at a distance of "
                f"{np.abs(away).max()} times the radius from the centre"
            )
        return np.clip(away, -1, 1)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        return np.asarray(self._middle + self._reach * self.duchi.sample(self._unit(values), rng))

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        signs = np.sign(np.asarray(reports, dtype=np.float64) - self._middle)
        return np.asarray(self.duchi.log_density(signs * self.duchi.bound, self._unit(value)).sum(axis=-1))

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        signs = 2 * all_bits(len(self._middle)).reports - 1
        return finite(self._middle + self._reach * signs * self.duchi.bound)

    def inputs(self) -> FloatArray:
        """Return input vectors that differ only in the first coordinate."""
        return np.array(self.worst_pair())

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        # The claim is of one coordinate, so its neighbours differ in one coordinate only.
        away = np.zeros_like(self._middle)
        away[0] = self._reach[0]
        return self._middle - away, self._middle + away

    def pair_law(self) -> PairLaw:
        """Return the two distributions of the reported first coordinate under the two values that reports distinguish
        best; all other coordinates have the same distribution under both.
        """
        up = np.exp(self.duchi.log_density([self.duchi.bound, -self.duchi.bound], 1.0))
        return PairLaw(np.log(up / up[::-1]), up, up[::-1])

    def estimate(self, reports: ArrayLike) -> FloatArray:
        return np.asarray(reports, dtype=np.float64)

    def variance(self, value: ArrayLike) -> FloatArray:
        return np.asarray(self._reach**2 * self.duchi.variance(self._unit(value)))
