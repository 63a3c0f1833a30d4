"""Compute the epsilon spent after the first rounds of a run, by the same accounting as the claim about all rounds.

It serves curves over the rounds and judges nothing, because the claim is about all of its rounds.
"""

from collections.abc import Callable
from dataclasses import replace

from ...audit.claim import Claim
from ...audit.curve import GaussianCurve, epsilon_from_mu
from .gaussian import SampledGaussian
from .pure import composed_epsilon

Spending = Callable[[int], float]
"""Rounds so far, from 1 to those of the claim -> their epsilon at the claim's delta."""
Participations = Callable[[int], int]
"""Rounds so far -> the largest number of them in which one client takes part (``int``: all of them)."""


def sampled_spending(claim: Claim, mechanism: SampledGaussian) -> dict[str, Spending]:
    """Return a dictionary from the claim's id to a function. The function takes a number of rounds and computes, by
    privacy-loss distributions, the epsilon of all Poisson-sampled Gaussian steps in these rounds; every round has
    equally many steps.
    """
    # Rounds must be alike for the first ones to be a prefix of the mechanism.
    each, rest = divmod(mechanism.steps, claim.rounds)
    if rest:
        raise ValueError(
            f"the number of steps must be a multiple of the number of rounds, {claim.rounds}, got "
            f"{mechanism.steps} steps"
        )

    def spent(rounds: int) -> float:
        return replace(mechanism, steps=each * rounds).epsilon(claim.delta)

    return {claim.claim_id: spent}


def gaussian_spending(claim: Claim, participations: Participations = int) -> dict[str, Spending]:
    """Return a dictionary from the claim's id to a function. The function takes a number of rounds and computes the
    epsilon of one Gaussian release per round in which a client takes part; mu grows with the root of their number (Dong
    et al. 2022, Corollary 3.3).

    Raises:
        ValueError: for a claim that states no Gaussian curve.
    """
    if not isinstance(claim.curve, GaussianCurve):
        raise ValueError(
            "the epsilon spent per round is defined only for a claim with a Gaussian trade-off curve, got "
            f"{claim.curve!r}"
        )
    mu = claim.curve.mu
    most = participations(claim.rounds)
    return {claim.claim_id: lambda rounds: epsilon_from_mu(mu * (participations(rounds) / most) ** 0.5, claim.delta)}


def pure_spending(
    claim: Claim, *, each: float, releases: int, participations: Participations = int
) -> dict[str, Spending]:
    """Return a dictionary from the claim's id to a function that computes the epsilon of a number of rounds. Every
    round in which a client takes part has ``releases`` releases of epsilon ``each``; their epsilons are summed at delta
    0, and otherwise composed exactly (see ``pure``).
    """
    return {
        claim.claim_id: lambda rounds: composed_epsilon(
            each, releases=releases * participations(rounds), delta=claim.delta
        ),
    }
