"""This broken local DP mechanism spends its epsilon on every coordinate but claims it once for the whole vector.

The real bug: each bit is randomised at the full epsilon, so two vectors that differ in all d bits leak d times as much.
"""

import numpy as np

from ....audit.arrays import FloatArray
from ..mutant import Mutant, Sample, report_claim
from .bits import randomised_response

EPSILON, COORDINATES = 2.0, 8


def mutant() -> Mutant:
    return Mutant(
        claim=report_claim(
            epsilon=EPSILON,
            mechanism=f"randomised response on each of {COORDINATES} bits",
            source="Warner 1965; basic composition over the coordinates",
        ),
        correct=_sampler(EPSILON / COORDINATES),
        broken=_sampler(EPSILON),
        scores=(_ones,),
        witness="the vector of ones and the vector of zeros; the number of ones",
    )


def _sampler(epsilon: float) -> Sample:
    def sample(world: int, n: int, rng: np.random.Generator) -> np.ndarray:
        return randomised_response(np.full((n, COORDINATES), world), epsilon=epsilon, rng=rng)

    return sample


def _ones(reports: np.ndarray) -> FloatArray:
    return np.asarray(reports.sum(axis=1), dtype=np.float64)
