"""This broken mechanism shuffles data for each epoch but accounts for batches as if they were Poisson samples.

The real bug: nearly every DP-SGD loop shuffles once per epoch, so that each sample is in exactly one of its lots, while
the accountant assumes independent draws (Chua et al. 2024, "How private are DP-SGD implementations?").
"""

import numpy as np
from scipy.special import logsumexp

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Unit
from ....audit.observer import UPLOADS
from ...accounting.gaussian import SampledGaussian
from ..mutant import Mutant, mechanism_claim

STEPS, LOT, SIGMA, DELTA = 20, 5, 0.5, 1e-5
RATE = 1 / STEPS


def mutant() -> Mutant:
    mechanism = SampledGaussian(sigma=SIGMA, rate=RATE, steps=STEPS)
    epsilon = mechanism.epsilon(DELTA)

    def poisson(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        # The gradients of the others are all -1, opposite to the unit's: the inputs of the witness.
        others = -rng.binomial(STEPS * LOT - 1, RATE, size=(n, STEPS))
        return _noised(others + world * rng.binomial(1, RATE, size=(n, STEPS)), rng)

    def shuffled(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        # At the unit's place in the epoch: +1 with the unit, 0 where it was zeroed out; the others are -1 each.
        sums = np.full((n, STEPS), -float(LOT))
        sums[np.arange(n), rng.integers(STEPS, size=n)] += 1 + world
        return _noised(sums, rng)

    return Mutant(
        claim=mechanism_claim(
            epsilon=epsilon,
            delta=DELTA,
            unit=Unit.SAMPLE,
            adjacency=Adjacency.ZERO_OUT,
            observer=UPLOADS,
            rounds=STEPS,
            mechanism="Poisson-subsampled Gaussian",
            sampling=f"each sample enters a lot with probability {RATE:g}, independently",
            source="Abadi et al. 2016, Algorithm 1",
            curve=mechanism.curve(epsilon),
        ),
        correct=poisson,
        broken=shuffled,
        scores=(_score,),
        witness="99 samples of gradient -1, and one of +1 or 0; ratio of the shuffled epoch's two laws",
    )


def _noised(sums: np.ndarray, rng: np.random.Generator) -> FloatArray:
    return np.asarray(sums + SIGMA * rng.standard_normal(sums.shape), dtype=np.float64)


def _score(releases: np.ndarray) -> FloatArray:
    """Log-likelihood ratio of the shuffled epoch: ln of the mean over places of N(2 e_t), less ln of the mean over
    places of N(e_t), of what lies above the sum of the others.
    """
    moved = releases + LOT
    inside, zeroed = (logsumexp((2 * row * moved - row**2) / (2 * SIGMA**2), axis=1) for row in (2, 1))
    return np.asarray(inside - zeroed, dtype=np.float64)
