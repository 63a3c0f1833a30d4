"""Draw the noised secure sum of several clients, projected onto the direction of one client's update."""

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Claim, Unit
from ....audit.observer import AGGREGATE
from ...accounting.gaussian import gaussian_curve, gaussian_noise
from ..mutant import mechanism_claim

EPSILON, DELTA = 2.0, 1e-5


def secure_sum_claim(mechanism: str) -> tuple[Claim, float]:
    """Return the claim that one noised secure sum satisfies epsilon 2, and the noise standard deviation (divided by the
    clip norm) that this epsilon requires.
    """
    sigma = gaussian_noise(epsilon=EPSILON, delta=DELTA, releases=1)
    claim = mechanism_claim(
        epsilon=EPSILON,
        delta=DELTA,
        unit=Unit.CLIENT,
        adjacency=Adjacency.ADD_REMOVE,
        observer=AGGREGATE,
        mechanism=mechanism,
        dp_model="distributed",
        source="Balle and Wang 2018, Theorem 8",
        curve=gaussian_curve(noise=sigma, releases=1),
    )
    return claim, sigma


def total(world: int, n: int, rng: np.random.Generator, *, shares: int, share: float) -> FloatArray:
    """Draw ``n`` secure sums, array of shape ``(n,)``: each adds one client's value (1 with the canary, 0 without) and
    ``shares`` noise shares, each of standard deviation ``share``.
    """
    # Shares are drawn one by one and summed, as clients would add them, not as one Gaussian.
    return np.asarray(world + share * rng.standard_normal((n, shares)).sum(axis=1), dtype=np.float64)
