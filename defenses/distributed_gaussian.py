"""Distributed Gaussian: every client adds a share of Gaussian noise to its word of a secure sum.

The oldest of the family (Dwork et al. 2006, "Our data, ourselves"; Goryczka and Xiong 2017): variances add, so K shares
of variance sigma^2 / K make the noise of a trusted server.
"""

from dataclasses import dataclass

import numpy as np

from ..fl.plan import Plan
from .accounting.accountant import ANALYTIC_GAUSSIAN
from .accounting.gaussian import gaussian_curve, gaussian_noise
from .defense import Prepared
from .secure.samplers import Integers, rounded_gaussian
from .secure.secure_sum import SecureSumDefense, SecureSumProtection


@dataclass(frozen=True, kw_only=True)
class DistributedGaussianProtection(SecureSumProtection):
    """A share is N(0, sigma^2 / shares), rounded to the grid."""

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> Integers:
        return rounded_gaussian(self.sized.sigma / shares**0.5, shape, rng)


@dataclass(frozen=True, kw_only=True)
class DistributedGaussian(SecureSumDefense):
    """Client-level DP by Gaussian shares in a secure sum.

    Signs the curve of the continuous Gaussian. Rows stand on the grid before the noise comes, so only the noise is
    rounded: with shares of deviation s steps that moves a log density by about (z^2 + 1) / (24 s^2) at z deviations,
    which the claim leaves out, as it leaves out floating point. ``distributed_discrete_gaussian`` does not need to.
    """

    def prepare(self, plan: Plan) -> Prepared:
        sized = self.sized(plan)
        claim = self.signed(
            plan,
            sized,
            mechanism="sum of Gaussian shares",
            accountant=ANALYTIC_GAUSSIAN,
            source="Balle and Wang 2018, Theorem 8; composition: Dong et al. 2022, Corollary 3.3",
            curve=gaussian_curve(noise=sized.sigma / sized.norm_bound, releases=plan.rounds),
        )
        return Prepared(protection=self.protected(DistributedGaussianProtection, sized), claims=(claim,))

    def sigma_of(self, norm: float, plan: Plan) -> float:
        return norm * gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=plan.rounds)
