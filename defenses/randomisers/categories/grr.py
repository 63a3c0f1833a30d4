"""Report a category, the true one most often (generalised randomised response: Kairouz et al. 2016, equation 3)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....audit.arrays import FloatArray, IntArray
from ..randomiser import FiniteDomain, WeightedReports, categories, finite, rejection


class GRR(FiniteDomain):
    """A randomiser that reports the true value with probability e^epsilon / (e^epsilon + domain - 1), otherwise any
    other value with equal probability.

    Values and reports are whole numbers in 0..domain-1; the target is the one-hot encoding, so that a mean of estimates
    is a vector of frequencies. The survey's equation 15 gives the second case as v = 1 - x; right is v != x. Drawn in
    integers, with at most about ``domain`` proposals per report.
    """

    source = "Kairouz, Bonawitz, Ramage 2016, equation 3; estimator: Wang et al. 2017"

    @property
    def truth(self) -> float:
        """Return the probability of reporting the true value."""
        return 1 / (1 + (self.domain - 1) * math.exp(-self.epsilon))

    @property
    def lie(self) -> float:
        """Return the probability of reporting one particular value other than the true one."""
        return (1 - self.truth) / (self.domain - 1)

    def sample(self, values: ArrayLike, rng: np.random.Generator) -> IntArray:
        true = categories(values, self.domain)
        flat = true.ravel()

        def propose(rows: NDArray[np.intp]) -> tuple[IntArray, FloatArray]:
            proposal = rng.integers(self.domain, size=rows.size)
            # The true value is always accepted, every other with probability e^-epsilon.
            return proposal, np.where(proposal == flat[rows], 0.0, self.epsilon)

        return rejection(flat.size, propose, rng).reshape(true.shape)

    def log_density(self, reports: ArrayLike, value: ArrayLike) -> FloatArray:
        same = categories(reports, self.domain) == categories(value, self.domain)
        return np.where(same, math.log(self.truth), math.log(self.lie))

    def outputs(self, *values: ArrayLike, cuts: Sequence[float] = ()) -> WeightedReports:
        return finite(np.arange(self.domain))

    def estimate(self, reports: ArrayLike) -> FloatArray:
        return np.asarray((self.target(reports) - self.lie) / (self.truth - self.lie))
