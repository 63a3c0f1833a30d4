"""This broken randomised response uses probabilities for a domain that is one value too small.

The real bug: the probability of the true value is e^eps / (e^eps + k - 1). A formula that counts the k - 1 other values
already and subtracts one again gives e^eps / (e^eps + k - 2).
"""

import math

import numpy as np

from ....audit.arrays import FloatArray
from ..mutant import Mutant, Sample, report_claim

EPSILON, DOMAIN = 1.0, 4


def mutant() -> Mutant:
    return Mutant(
        claim=report_claim(
            epsilon=EPSILON,
            mechanism=f"generalised randomised response over {DOMAIN} values",
            source="Kairouz, Bonawitz, Ramage 2016, equation 3",
        ),
        correct=_sampler(DOMAIN),
        broken=_sampler(DOMAIN - 1),
        scores=(_is_one,),
        witness="values 1 and 0; the event {1 is reported}",
    )


def _sampler(domain: int) -> Sample:
    """Generalised randomised response over DOMAIN values whose probabilities are those of another ``domain``."""
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + domain - 1)

    def sample(world: int, n: int, rng: np.random.Generator) -> np.ndarray:
        # An offset of 1..k-1 modulo k is uniform over the other values and never the true one.
        other = (world + rng.integers(1, DOMAIN, size=n)) % DOMAIN
        return np.asarray(np.where(rng.random(n) < keep, world, other))

    return sample


def _is_one(reports: np.ndarray) -> FloatArray:
    return np.asarray(reports == 1, dtype=np.float64)
