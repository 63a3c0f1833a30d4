"""Every client adds a share of Gaussian noise to a secure sum, for client-level DP.

The oldest of the family (Dwork et al. 2006, "Our data, ourselves"; Goryczka and Xiong 2017): variances add, so K shares
of variance sigma^2 / K make the noise of a trusted server.
"""

import numpy as np

from ...audit.arrays import IntArray
from ...audit.curve import Curve
from ...fl.plan import Plan
from ..accounting.accountant import ANALYTIC_GAUSSIAN
from ..accounting.gaussian import gaussian_curve, gaussian_noise
from .integer_draws import rounded_gaussian
from .modular_sum import SizedGrid
from .secure_sum import SecureSumDefense, SecureSumProtection

LEAST_SHARE = 2.0
"""Steps in the deviation of a share from which rounding is negligible."""


class DistributedGaussianProtection(SecureSumProtection):
    """A secure-sum protection in which each client adds noise N(0, sigma^2 / shares), rounded to the integer grid."""

    sums = "sum"

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        return rounded_gaussian(self.sized.sigma / shares**0.5, shape, rng)


class DistributedGaussian(SecureSumDefense):
    """A defense for client-level DP in which each client adds a share of Gaussian noise to a secure sum.

    States the curve of the continuous Gaussian, although every share is rounded. Rows lie on the grid before noise is
    added, so the rounding error does not depend on them. Given it, a share is a discrete Gaussian about a public
    centre, the sum is one within a factor exp(+-tau), tau = 10 sum_k exp(-2 pi^2 s^2 k / (k + 1)) for shares of
    deviation s steps (as Kairouz et al. 2021, Theorem 1), and averaged over its centre that is a post-processing of the
    Gaussian sum. From s = 2 on tau is below 1e-16 per coordinate and round, which the claim omits, as it omits floating
    point. Smaller shares are mostly rounded to 0, and the sum would have less noise than stated.

    Raises (in prepare):
        ValueError: where ``bits`` leave a share of the largest cohort a deviation below 2 steps;
            ``distributed_discrete_gaussian`` has no such limit.
    """

    kind = DistributedGaussianProtection
    mechanism = "sum of Gaussian shares"
    accountant = ANALYTIC_GAUSSIAN
    source = "Balle and Wang 2018, Theorem 8; composition: Dong et al. 2022, Corollary 3.3"

    def curve(self, plan: Plan, sized: SizedGrid) -> Curve:
        return gaussian_curve(noise=sized.sigma / sized.norm_bound, releases=plan.rounds)

    def sized(self, plan: Plan) -> SizedGrid:
        sized, shares = super().sized(plan), self.shares(plan)
        # The grid is already the finest that the bits allow, so no finer one could help.
        if (std := sized.sigma / shares**0.5) < LEAST_SHARE:
            raise ValueError(
                f"bits must allow each of {shares} noise shares a standard deviation of at least {LEAST_SHARE:g} grid "
                f"steps, got {self.bits} bits, which allow {std:.3g} steps; use more bits, a smaller epsilon, or "
                "distributed_discrete_gaussian, which has no such limit"
            )
        return sized

    def sigma_of(self, norm: float, plan: Plan) -> float:
        return norm * gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=plan.rounds)
