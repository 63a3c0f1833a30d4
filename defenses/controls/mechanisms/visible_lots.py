"""This broken mechanism claims amplification by sampling, although the server observes which samples were drawn.

The real bug: the report carries the indices or the size of the lot (or the participants are logged), so the observer
knows whether the unit took part.
"""

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Unit
from ....audit.estimators.likelihood_ratio import subsampled_gaussian
from ....audit.observer import UPLOADS
from ...accounting.gaussian import calibrate_sampled_gaussian
from ..mutant import Mutant, mechanism_claim

EPSILON, DELTA, STEPS, RATE = 2.0, 1e-5, 20, 0.1


def mutant() -> Mutant:
    mechanism = calibrate_sampled_gaussian(epsilon=EPSILON, delta=DELTA, rate=RATE, steps=STEPS)
    sigma = mechanism.sigma

    def release(world: int, n: int, rng: np.random.Generator, *, shown: bool) -> FloatArray:
        drawn = world * rng.binomial(1, RATE, size=(n, STEPS))
        noised = drawn + sigma * rng.standard_normal((n, STEPS))
        # The correct version has the same shape with zeros, so one score reads both.
        return np.stack([noised, drawn * float(shown)], axis=2)

    def score(releases: np.ndarray) -> FloatArray:
        # A visible draw decides by itself: 1e3 is above every log-likelihood ratio that the noise produces.
        ratio = subsampled_gaussian(releases[..., 0], sigma=sigma, rate=RATE, steps=1)
        return np.asarray(ratio.sum(axis=1) + 1e3 * releases[..., 1].any(axis=1), dtype=np.float64)

    return Mutant(
        claim=mechanism_claim(
            epsilon=EPSILON,
            delta=DELTA,
            unit=Unit.SAMPLE,
            adjacency=Adjacency.ADD_REMOVE,
            observer=UPLOADS,
            rounds=STEPS,
            mechanism="Poisson-subsampled Gaussian",
            sampling=f"each sample enters a lot with probability {RATE:g}, independently, unseen",
            source="Abadi et al. 2016, Algorithm 1",
            curve=mechanism.curve(EPSILON),
        ),
        correct=lambda world, n, rng: release(world, n, rng, shown=False),
        broken=lambda world, n, rng: release(world, n, rng, shown=True),
        scores=(score,),
        witness="a sample of clip norm or none; whether it was ever seen in a lot, then the likelihood ratio",
    )
