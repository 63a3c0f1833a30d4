"""Define the base class of randomisers of one number in [-radius, radius]."""

from abc import ABC
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray
from ..randomiser import NOT_GIVEN, Randomiser, check_radius


@dataclass(frozen=True, kw_only=True)
class BoundedNumber(Randomiser, ABC):
    """A base class of randomisers of one number whose report is itself the server's estimate; reports distinguish the
    two ends of the range best.

    Args:
        radius: values lie in [-radius, radius]; > 0 and finite.
    """

    radius: float = NOT_GIVEN

    def __post_init__(self) -> None:
        super().__post_init__()
        check_radius("radius", self.radius)

    def inputs(self) -> FloatArray:
        return np.array(self.worst_pair())

    def worst_pair(self) -> tuple[FloatArray, FloatArray]:
        return np.array(-self.radius), np.array(self.radius)

    def estimate(self, reports: ArrayLike) -> FloatArray:
        return np.asarray(reports, dtype=np.float64)
