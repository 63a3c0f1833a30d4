"""This broken secure sum sizes each noise share for more clients than take part.

The real bug: each client's variance is sigma^2 / K with K the number of registered clients, and the cohort that is
summed is smaller.
"""

import math

import numpy as np

from ..mutant import Mutant, Sample
from .noise_shares import secure_sum_claim, total

REGISTERED, COHORT = 100, 30


def mutant() -> Mutant:
    claim, sigma = secure_sum_claim(f"Gaussian shares of a cohort of {COHORT} clients in a secure sum")

    def sampler(accounted: int) -> Sample:
        share = sigma / math.sqrt(accounted)
        return lambda world, n, rng: total(world, n, rng, shares=COHORT, share=share)

    return Mutant(
        claim=claim,
        correct=sampler(COHORT),
        broken=sampler(REGISTERED),
        scores=(lambda sums: np.asarray(sums, dtype=np.float64),),
        witness=f"one client of clip norm or none, the others 0, a cohort of {COHORT} of {REGISTERED}; the sum",
    )
