"""Binomial: shares of centred coin tosses in a secure sum (cpSGD: Agarwal et al. 2018, Theorem 1)."""

import math
from dataclasses import dataclass

import numpy as np

from ..fl.plan import Plan
from .defense import Prepared
from .secure.calibration import binomial_sigma
from .secure.samplers import Integers, centred_binomial
from .secure.secure_sum import SecureSumDefense, SecureSumProtection


@dataclass(frozen=True, kw_only=True)
class BinomialProtection(SecureSumProtection):
    """A share is Binomial(4 sigma^2 / shares, 1/2) less its mean, the coins rounded up to a multiple of 16."""

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> Integers:
        coins = 16 * math.ceil(self.sized.sigma**2 / shares / 4)
        return centred_binomial(coins, shape, rng)


@dataclass(frozen=True, kw_only=True)
class Binomial(SecureSumDefense):
    """Client-level DP by binomial shares in a secure sum.

    The theorem covers one release: rounds are composed by equal parts of epsilon and delta, which is sound and not
    tight, and a round gets the noise of epsilon 1 at least. So it takes four to six times the noise of a Gaussian of
    the default budget.
    """

    def prepare(self, plan: Plan) -> Prepared:
        sized = self.sized(plan)
        claim = self.signed(
            plan,
            sized,
            mechanism="sum of binomial shares",
            accountant="closed form a round, basic composition",
            source="Agarwal et al. 2018, Theorem 1 at p = 1/2",
        )
        return Prepared(protection=self.protected(BinomialProtection, sized), claims=(claim,))

    def sigma_of(self, norm: float, plan: Plan) -> float:
        return binomial_sigma(norm, epsilon=self.epsilon, delta=self.delta, rounds=plan.rounds, dim=plan.layout.dim)
