"""This broken mechanism draws batches of a fixed size but accounts for privacy as if they were Poisson samples.

The real bug: a data loader draws batches of equal size, while the accountant assumes that each sample enters
independently. A unit that enters a full lot displaces another sample and so moves the sum by up to twice the clip norm
(Lebeda, Regehr, Kamath 2024, "Avoiding pitfalls for privacy accounting of subsampled mechanisms").
"""

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Unit
from ....audit.estimators.likelihood_ratio import subsampled_gaussian
from ....audit.observer import UPLOADS
from ...accounting.gaussian import calibrate_sampled_gaussian
from ..mutant import Mutant, mechanism_claim

EPSILON, DELTA, STEPS, SAMPLES, LOT = 2.0, 1e-5, 20, 40, 4
RATE = LOT / SAMPLES


def mutant() -> Mutant:
    mechanism = calibrate_sampled_gaussian(epsilon=EPSILON, delta=DELTA, rate=RATE, steps=STEPS)
    sigma = mechanism.sigma

    def release(total: np.ndarray, rng: np.random.Generator) -> FloatArray:
        return np.asarray(total + sigma * rng.standard_normal(total.shape), dtype=np.float64)

    def poisson(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        others = -rng.binomial(SAMPLES - 1, RATE, size=(n, STEPS))
        return release(others + world * rng.binomial(1, RATE, size=(n, STEPS)), rng)

    def fixed(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        # In the lot of 4 the unit (+1) takes the place of one of the others (-1 each).
        return release(-LOT + 2 * world * rng.binomial(1, RATE, size=(n, STEPS)), rng)

    def score(releases: np.ndarray) -> FloatArray:
        # The unit moves the sum by 2, so half the distance to the sum of the others has sensitivity 1.
        moved = (releases + LOT) / 2
        return np.asarray(subsampled_gaussian(moved, sigma=sigma / 2, rate=RATE, steps=1).sum(axis=1), dtype=np.float64)

    return Mutant(
        claim=mechanism_claim(
            epsilon=EPSILON,
            delta=DELTA,
            unit=Unit.SAMPLE,
            adjacency=Adjacency.ADD_REMOVE,
            observer=UPLOADS,
            rounds=STEPS,
            mechanism="Poisson-subsampled Gaussian",
            sampling=f"each sample enters a lot with probability {RATE:g}, independently",
            source="Abadi et al. 2016, Algorithm 1",
            curve=mechanism.curve(EPSILON),
        ),
        correct=poisson,
        broken=fixed,
        scores=(score,),
        witness="39 samples of gradient -1, and one of +1 or not; ratio of a row twice the clip norm",
    )
