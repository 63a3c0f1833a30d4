"""Randomised response with the size of the domain off by one.

The real bug: the probability to keep the truth is e^eps / (e^eps + k - 1); written with k - 1 values counted already,
it becomes e^eps / (e^eps + k - 2).
"""

import math

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Unit
from ....audit.observer import UPLOADS
from .mutant import Mutant, Sample, signed

EPSILON, DOMAIN = 1.0, 4


def mutant() -> Mutant:
    return Mutant(
        claim=signed(
            epsilon=EPSILON,
            delta=0.0,
            unit=Unit.REPORT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=UPLOADS,
            mechanism=f"generalised randomised response over {DOMAIN} values",
            dp_model="local",
            source="Kairouz, Bonawitz, Ramage 2016, equation 3",
        ),
        correct=_edition(DOMAIN),
        broken=_edition(DOMAIN - 1),
        scores=(_is_one,),
        witness="values 1 and 0; the event {1 is reported}",
    )


def _edition(domain: int) -> Sample:
    """Generalised randomised response over DOMAIN values that believes in another ``domain``."""
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + domain - 1)

    def sample(world: int, n: int, rng: np.random.Generator) -> np.ndarray:
        other = (world + rng.integers(1, DOMAIN, size=n)) % DOMAIN
        return np.asarray(np.where(rng.random(n) < keep, world, other))

    return sample


def _is_one(reports: np.ndarray) -> FloatArray:
    return np.asarray(reports == 1, dtype=np.float64)
