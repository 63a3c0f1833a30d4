"""Spending: the epsilon that a claim's own accountant gives for the first of its rounds, at the claim's noise.

It serves curves over the rounds and judges nothing, because the claim is about all of its rounds.
"""

from collections.abc import Callable

from ...audit.claim import Claim
from ...audit.curve import GaussianCurve
from ...audit.gaussian import epsilon_from_mu
from .gaussian import SampledGaussian
from .pure import composed_epsilon

Spending = Callable[[int], float]
"""Rounds so far, from 1 to those of the claim -> their epsilon at the claim's delta."""


def sampled_spending(claim: Claim, mechanism: SampledGaussian) -> dict[str, Spending]:
    """Spending of Poisson-sampled Gaussian steps, equally many in each round, by privacy-loss distributions."""
    # Rounds must be alike for the first ones to be a prefix of the mechanism.
    each, rest = divmod(mechanism.steps, claim.rounds)
    if rest:
        raise ValueError(f"steps must be as many in each of {claim.rounds} rounds, got {mechanism.steps} in all")

    def spent(rounds: int) -> float:
        part = SampledGaussian(sigma=mechanism.sigma, rate=mechanism.rate, steps=each * rounds)
        return part.epsilon(claim.delta)

    return {claim.claim_id: spent}


def gaussian_spending(claim: Claim) -> dict[str, Spending]:
    """Spending of one Gaussian release per round, all alike: mu grows with the root of the rounds (Dong et al. 2022,
    Corollary 3.3).

    Raises:
        ValueError: for a claim that states no Gaussian curve.
    """
    if not isinstance(claim.curve, GaussianCurve):
        raise ValueError(f"a claim must state a Gaussian curve to have a spending over its rounds, got {claim.curve!r}")
    mu = claim.curve.mu
    return {claim.claim_id: lambda rounds: epsilon_from_mu(mu * (rounds / claim.rounds) ** 0.5, claim.delta)}


def pure_spending(claim: Claim, *, each: float, releases: int) -> dict[str, Spending]:
    """Spending of ``releases`` releases per round, each ``each``-DP: their sum at delta 0, else exact composition (see
    ``pure``).
    """
    return {
        claim.claim_id: lambda rounds: composed_epsilon(each, releases=releases * rounds, delta=claim.delta),
    }
