"""Clients add centred coin tosses to a secure sum, for client-level DP (cpSGD: Agarwal et al. 2018, Theorem 1)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import IntArray
from ...audit.claim import Value
from ...fl.plan import Plan
from ..accounting.integer_noise import binomial_noise, binomial_noise_epsilon, published_binomial_noise, whole_share
from ..defense import Prepared, Variant, provable, restated
from .integer_draws import centred_binomial
from .modular_sum import SizedGrid
from .secure_sum import SecureSumDefense, SecureSumProtection

_LEAST_DELTA = 1e-12


class BinomialProtection(SecureSumProtection):
    """A secure-sum protection in which each client adds Binomial(4 sigma^2 / shares, 1/2) noise minus its mean; the
    number of coin tosses is rounded up to an even number.
    """

    sums = "sum"

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        # An even number of coins per share keeps half of them, the mean, a whole number.
        return centred_binomial(2 * whole_share(2 * self.sized.sigma**2, shares), shape, rng)


@dataclass(frozen=True, kw_only=True)
class Binomial(SecureSumDefense):
    """A defense for client-level DP in which each client adds a share of binomial noise to a secure sum (cpSGD).

    Rounds compose by Renyi divergences of noise that stays in a window, which omits at most a hundredth of delta. The
    budget then needs as much noise as with discrete Gaussians (``accounting.discrete.binomial_rdp``).

    Args:
        variant: "corrected", or "as_published": the paper's noise and claim, each round at an equal part of the budget.

    Errata:
        - False as restated in an Internet-Draft: Theorem 1 (formula 7), the epsilon of a release, without a limit on
          epsilon. On a fine grid it is the classic Gaussian formula, which holds up to epsilon 8.4 at delta 1e-5.
          Calibrated to 10 at ten thousand grid steps to the norm, noise of 95,092,644 coins on one coordinate really
          has epsilon 10.3. The paper was not at hand: the Internet-Draft draft-case-ppm-binomial-dp restates the
          theorem with a condition on the number of coins, which this example meets, and with none on epsilon. On a fine
          grid the theorem holds at 2 to 4, the epsilons of the paper's experiments (Table 3 of the survey of Fu et al.
          2024). Here: Renyi divergences; as_published has the theorem.
        - Loose but valid: the theorem is about one release, and rounds are left to composition theorems. Noise that
          stays in a window is sub-Gaussian and composes as a Gaussian's: 20 rounds of 650 coordinates, 800 grid steps
          to the norm, at epsilon 4 and delta 1e-5 take 5.18 norms, where equal parts of the theorem's take 27.2 (closed
          forms of advanced composition, which the survey's Table 3 lists for the paper, take no less). Here: Renyi
          divergences of all rounds; as_published takes equal parts.
    """

    kind = BinomialProtection
    mechanism = "sum of binomial shares"
    source = "mechanism: Agarwal et al. 2018; fair coins in a window: Hoeffding 1963"
    variant: Variant = "corrected"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta < _LEAST_DELTA:
            raise ValueError(
                f"delta must be >= {_LEAST_DELTA:g}, because a hundredth of delta must cover the tail of the noise, "
                f"got {self.delta:g}"
            )

    def prepare(self, plan: Plan) -> Prepared:
        prepared = super().prepare(plan)
        if self.variant == "corrected":
            return prepared
        return restated(
            prepared,
            accountant="closed form per round, basic composition",
            source="Agarwal et al. 2018, Theorem 1 at p = 1/2, as published",
        )

    def sigma_of(self, norm: float, plan: Plan) -> float:
        # Only the noise differs between the variants; grid and shares are the same.
        noise = published_binomial_noise if self.variant == "as_published" else binomial_noise
        return noise(norm, shares=self.shares(plan), **self.budget(plan))

    def more(self, plan: Plan, sized: SizedGrid) -> dict[str, Value]:
        if self.variant == "corrected":
            return {}
        return provable(
            binomial_noise_epsilon(
                sized.norm_bound, sigma=sized.sigma, delta=self.delta, rounds=plan.rounds, dimension=plan.layout.dim
            ),
            else_none="too few coin tosses for the Renyi bound",
        )
