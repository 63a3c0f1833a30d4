"""Clients add discrete Gaussian noise to a secure sum, for client-level DP (Kairouz, Liu, Steinke 2021)."""

import numpy as np

from ...audit.arrays import IntArray
from ...fl.plan import Plan
from ..accounting.integer_noise import discrete_gaussian_noise, whole_share
from .integer_draws import discrete_gaussian
from .secure_sum import SecureSumDefense, SecureSumProtection


class DistributedDiscreteGaussianProtection(SecureSumProtection):
    """A secure-sum protection in which each client adds discrete Gaussian noise of variance sigma^2 / shares, rounded
    up to a whole number.
    """

    sums = "sum"

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        return discrete_gaussian(whole_share(self.sized.sigma**2, shares), shape, rng)


class DistributedDiscreteGaussian(SecureSumDefense):
    """A defense for client-level DP in which each client adds a share of discrete Gaussian noise to a secure sum
    (Kairouz, Liu, Steinke 2021, Algorithm 1).

    A sum of discrete Gaussians is not a discrete Gaussian. The bound includes its distance from one, which is
    negligible (below 1e-9) as soon as a share's deviation is two steps. The paper's random rotation, which saves bits
    and does not affect privacy, is omitted: the grid is sized for the worst direction.
    """

    kind = DistributedDiscreteGaussianProtection
    mechanism = "sum of discrete Gaussian shares"
    source = "Kairouz, Liu and Steinke 2021, Proposition 14; noise drawn exactly, from a table of integers"

    def sigma_of(self, norm: float, plan: Plan) -> float:
        # More shares are further from a discrete Gaussian; shares of clients that may drop out only add noise.
        return discrete_gaussian_noise(norm, shares=self.shares(plan), **self.budget(plan))
