"""This broken local DP mechanism spends its epsilon again in every round but claims it once for all rounds.

The real bug: the client draws fresh noise at the full epsilon in each round, and the claim forgets composition.
"""

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.estimators.likelihood_ratio import laplace
from ..mutant import Mutant, Sample, report_claim

EPSILON, ROUNDS = 1.0, 10
# Values lie in [-1, 1], so two of them are at most 2 apart.
_RANGE = 2.0


def mutant() -> Mutant:
    return Mutant(
        claim=report_claim(
            epsilon=EPSILON,
            rounds=ROUNDS,
            mechanism=f"Laplace in each of {ROUNDS} rounds",
            source="Dwork et al. 2006; basic composition over the rounds",
        ),
        correct=_sampler(ROUNDS * _RANGE / EPSILON),
        broken=_sampler(_RANGE / EPSILON),
        scores=(_score,),
        witness="the values 1 and -1 in every round; the likelihood ratio of the renewed budget",
    )


def _sampler(scale: float) -> Sample:
    def sample(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        return (2.0 * world - 1) + rng.laplace(scale=scale, size=(n, ROUNDS))

    return sample


def _score(reports: np.ndarray) -> FloatArray:
    # Centred at the lower value -1, so that the ratio is between shifts of 0 and of the whole range.
    return laplace(reports + 1, np.full(ROUNDS, _RANGE), scale=_RANGE / EPSILON)
