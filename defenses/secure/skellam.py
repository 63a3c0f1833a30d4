"""Clients add differences of Poisson numbers to a secure sum, for client-level DP (Agarwal, Kairouz, Liu 2021)."""

import numpy as np

from ...audit.arrays import IntArray
from ...fl.plan import Plan
from ..accounting.integer_noise import skellam_noise
from .integer_draws import skellam
from .secure_sum import SecureSumDefense, SecureSumProtection


class SkellamProtection(SecureSumProtection):
    """A secure-sum protection in which each client adds Skellam noise of variance sigma^2 / shares; a sum of Skellam
    noise is again Skellam noise.
    """

    sums = "sum"

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        return skellam(self.sized.sigma**2 / shares, shape, rng)


class Skellam(SecureSumDefense):
    """A defense for client-level DP in which each client adds a share of Skellam noise to a secure sum (Agarwal,
    Kairouz, Liu 2021, Algorithm 1).

    The bound uses the L2 and the L1 sensitivity, which differ (a survey of DP in federated learning prints one for
    both); the L1 norm of an integer row is at most min(sqrt(d) L2, L2^2).
    """

    kind = SkellamProtection
    mechanism = "sum of Skellam shares"
    source = "Agarwal, Kairouz and Liu 2021, Theorem 3.5"

    def sigma_of(self, norm: float, plan: Plan) -> float:
        return skellam_noise(norm, **self.budget(plan))
