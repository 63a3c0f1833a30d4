"""Define the base class of randomisers of one value out of 0..domain-1."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ....audit.arrays import FloatArray, IntArray
from ..randomiser import Randomiser, categories, check_given_count


@dataclass(frozen=True, kw_only=True)
class FiniteDomain(Randomiser, ABC):
    """A base class of randomisers of whole numbers in 0..domain-1, which estimate the value's one-hot encoding.

    Args:
        domain: number of values, >= ``smallest_domain``.
    """

    domain: int = 0
    smallest_domain: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("domain", self.domain, least=self.smallest_domain)

    def inputs(self) -> IntArray:
        return np.arange(self.domain)

    def worst_pair(self) -> tuple[IntArray, IntArray]:
        # By symmetry of the values any two of them are a worst pair.
        return np.array(1), np.array(0)

    def target(self, value: ArrayLike) -> FloatArray:
        return np.asarray(categories(value, self.domain)[..., np.newaxis] == np.arange(self.domain), dtype=np.float64)
