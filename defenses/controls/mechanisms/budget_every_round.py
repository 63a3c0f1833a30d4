"""A local budget renewed every round, claimed for all of them.

The real bug: the client draws fresh noise at the full epsilon in each round, and the claim forgets composition.
"""

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Unit
from ....audit.estimators.likelihood_ratio import laplace
from ....audit.observer import UPLOADS
from .mutant import Mutant, Sample, signed

EPSILON, ROUNDS = 1.0, 10
_RANGE = 2.0
"""Values lie in [-1, 1]."""


def mutant() -> Mutant:
    return Mutant(
        claim=signed(
            epsilon=EPSILON,
            delta=0.0,
            unit=Unit.REPORT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=UPLOADS,
            rounds=ROUNDS,
            mechanism=f"Laplace in each of {ROUNDS} rounds",
            dp_model="local",
            source="Dwork et al. 2006; basic composition over the rounds",
        ),
        correct=_edition(ROUNDS * _RANGE / EPSILON),
        broken=_edition(_RANGE / EPSILON),
        scores=(_score,),
        witness="the values 1 and -1 in every round; the likelihood ratio of the renewed budget",
    )


def _edition(scale: float) -> Sample:
    def sample(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        return (2.0 * world - 1) + rng.laplace(scale=scale, size=(n, ROUNDS))

    return sample


def _score(reports: np.ndarray) -> FloatArray:
    return laplace(reports + 1, np.full(ROUNDS, _RANGE), scale=_RANGE / EPSILON)
