"""This broken Piecewise mechanism spends more epsilon than it claims.

The real bug: a sixth of the budget is set aside for a second query (a count, a choice of coordinate), but it is not
subtracted from the first query, which still spends all of it: 1.2 epsilon where epsilon is claimed.
"""

from dataclasses import replace

import numpy as np

from ....audit.arrays import FloatArray
from ...randomisers.numbers.piecewise import Piecewise
from ...randomisers.randomiser import Randomiser
from ..mutant import Mutant, Sample

EPSILON, SPENT = 1.0, 1.2


def mutant() -> Mutant:
    correct = Piecewise(epsilon=EPSILON, radius=1.0)
    # The event of the broken version is the one to test: its laws differ most there.
    broken = replace(correct, epsilon=SPENT)

    def score(reports: np.ndarray) -> FloatArray:
        return np.asarray(broken.event(reports), dtype=np.float64)

    return Mutant(
        claim=correct.claim(),
        correct=_sampler(correct),
        broken=_sampler(broken),
        scores=(score,),
        witness="values 1 and -1; the event {report in the interval of 1}",
    )


def _sampler(randomiser: Randomiser) -> Sample:
    pair = randomiser.worst_pair()

    def sample(world: int, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(randomiser.sample(np.full(n, pair[world]), rng))

    return sample
