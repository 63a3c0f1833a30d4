"""Report one sampled coordinate of a vector by Duchi's mechanism (Harmony: Nguyen et al. 2016)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..numbers.duchi import Duchi
from ..randomiser import NOT_GIVEN, Randomiser, WeightedReports, check_given_count, check_radius, labelled, vectors


@dataclass(frozen=True, kw_only=True)
class Harmony(Randomiser):
    """A randomiser of a vector of shape (dimension,) with entries in [-radius, radius]. Its report is (coordinate,
    +-bound); the coordinate is drawn uniformly and independently of the data.

    The estimate, ``dimension`` times the number at its coordinate, is unbiased for the whole vector. The claim is of
    the whole vector, because one coordinate alone is reported. The survey describes it for bit vectors.
    """

    dimension: int = 0
    radius: float = NOT_GIVEN
    source: ClassVar[str] = "Nguyen et al. 2016, Harmony; one number: Duchi, Jordan, Wainwright 2018"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("dimension", self.dimension, least=1)
        check_radius("radius", self.radius)

    @property
    def duchi(self) -> Duchi:
        """Return Duchi's mechanism, which randomises the sampled coordinate."""
        return Duchi(epsilon=self.epsilon, radius=self.radius)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> FloatArray:
        rows = vectors(values, self.dimension, self.radius)
        # Drawn before the values are read: the choice must not depend on them.
        chosen = rng.integers(self.dimension, size=rows.shape[:-1])
        number = np.take_along_axis(rows, chosen[..., np.newaxis], axis=-1)[..., 0]
        return np.stack([chosen.astype(np.float64), self.duchi.sample(number, rng)], axis=-1)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        rows, true = np.asarray(reports, dtype=np.float64), vectors(value, self.dimension, self.radius)
        number = true[rows[..., 0].astype(np.int64)]
        return self.duchi.log_density(rows[..., 1], number) - math.log(self.dimension)

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        return labelled(self.dimension, self.duchi.outputs())

    def inputs(self) -> FloatArray:
        return np.array(self.worst_pair())

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        ends = np.full(self.dimension, self.radius)
        return -ends, ends

    def estimate(self, reports: ArrayLike) -> FloatArray:
        rows = np.asarray(reports, dtype=np.float64)
        at = rows[..., :1] == np.arange(self.dimension)
        return np.asarray(self.dimension * rows[..., 1:] * at)

    def variance(self, value: ArrayLike) -> FloatArray:
        true = vectors(value, self.dimension, self.radius)
        return np.asarray(self.dimension * self.duchi.bound**2 - true**2)
