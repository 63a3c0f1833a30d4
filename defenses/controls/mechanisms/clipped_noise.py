"""This broken Gaussian mechanism cuts its noise off at two standard deviations.

The real bug: the noise is clamped, or the noised value saturates, to fit the integers of the wire format. An output
beyond the cut is possible under one input only.
"""

import numpy as np

from ....audit.arrays import FloatArray
from ..mutant import Mutant
from .noise_shares import secure_sum_claim

CUT = 2.0


def mutant() -> Mutant:
    claim, sigma = secure_sum_claim("Gaussian")

    def whole(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        return world + sigma * rng.standard_normal(n)

    # Clamps the noise and not the sum: a clamped sum is post-processing and would keep the claim.
    def clamped(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        return world + sigma * np.clip(rng.standard_normal(n), -CUT, CUT)

    return Mutant(
        claim=claim,
        correct=whole,
        broken=clamped,
        scores=(lambda sums: np.asarray(sums, dtype=np.float64),),
        witness="one client of clip norm or none, the others 0; the sum",
    )
